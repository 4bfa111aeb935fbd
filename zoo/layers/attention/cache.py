"""Key/value caches for incremental decoding: arguments and results, never state of a layer.

A cache is a dict with `key` [..., L, D] and `value` [..., L, D]. There are three kinds. One has room for a fixed number
of positions L, of which `index` (int32 scalar) are filled: all sizes are known, as XLA and JAX need it. One has no
`index`: it grows, and L is the number of positions in it. A rolling one keeps those of `index` positions that the next
query may see, the first F and the last L − F, and in `real` [B, L] which of them are there and not masked.
"""

import operator

from keras import ops

from zoo.layers.attention.query_blocks import take_nearest_rows
from zoo.layers.core.lazy import computed_from, length_of


def position(cache):
    """Returns the number of positions in a cache, which is the place of the next one; `Lazy` where it is a size."""
    return cache["index"] if "index" in cache else length_of(cache["key"], -2)


def grows(cache):
    """Returns whether the cache grows with every position."""
    return "index" not in cache


def rolls(cache):
    """Returns whether the cache keeps the last positions only."""
    return "real" in cache


def check_rolling_step(queries, added):
    """Checks that there are no more queries than new keys: what earlier ones see is no longer there.

    Raises:
        ValueError: If there are.
    """
    if isinstance(queries, int) and isinstance(added, int) and queries > added:
        raise ValueError(
            "A rolling cache no longer has what queries before its last keys see: give as many values as queries. "
            f"Received: {queries} queries and {added} values."
        )


def rolled(cache, memory, real=None, first=0):
    """Appends `key` and `value` [..., T, D] of new positions to a rolling cache, which keeps the `first` ones, too.

    `real` [B, T] says which of them are, by default all.

    Returns:
        `key`, `value`, `real` and `positions` of all that the new positions may attend to, and the new cache. As long
        as one of the first is among the last as well, it is not real there.
    """
    last = cache["real"].shape[1] - first
    if real is None:
        real = ops.ones((ops.shape(cache["real"])[0], ops.shape(memory["value"])[-2]), dtype="bool")
    index, added = cache["index"], ops.shape(real)[1]
    columns = {"real": real[:, :, None]}  # positions on the last axis but one, as those of keys and values
    joined = {name: _joined(cache, name, new, first) for name, new in {**memory, **columns}.items()}
    kept = ops.arange(last, dtype="int32") + first + added
    if first:
        kept = ops.concatenate([ops.arange(first, dtype="int32"), kept])
    rest = {name: ops.take(tensor, kept, axis=-2) for name, tensor in joined.items()}
    rest |= {"real": rest["real"][..., 0], "index": index + added}
    positions = ops.arange(last + added, dtype="int32") + (index - last)
    there = joined.pop("real")[..., 0]
    if first:
        positions = ops.concatenate([ops.arange(first, dtype="int32"), positions])
        is_first = ops.arange(ops.shape(positions)[0], dtype="int32") < first
        there = ops.logical_and(there, ops.logical_or(is_first, positions >= first))
    return {**joined, "real": there, "positions": positions}, rest


def _as_rows(cache, name):
    return cache[name][:, :, None] if name == "real" else cache[name]


def _joined(cache, name, new, first):
    """Returns the first positions, with those of the new ones that are among them, the last ones and the new ones."""
    rows = _as_rows(cache, name)
    if not first:
        return ops.concatenate([rows, new], axis=-2)
    front = write(rows[..., :first, :], new, cache["index"])
    return ops.concatenate([front, rows[..., first:, :], new], axis=-2)


def room_for(cache, length):
    """Returns L of a cache once `length` more positions are in it; `Lazy` if it is unknown."""
    room = length_of(cache["key"], -2)
    return computed_from(operator.add, room, length) if grows(cache) else room


def first_query_position(position, added, queries):
    """Returns the position of the first of `queries` at the end of `added` keys, the first of which is at `position`.

    In decoding there are as many queries as keys: then nothing is computed.
    """
    if isinstance(added, int) and isinstance(queries, int) and added == queries:
        return position
    return computed_from(lambda position, added, queries: position + added - queries, position, added, queries)


def write(buffer, update, index):
    """Returns `buffer` [..., L, D] with `update` [..., T, D] written at the positions `index` … `index + T − 1`.

    A select rather than a slice update: Keras' slice update needs XLA on the TensorFlow backend.
    """
    source = ops.arange(ops.shape(buffer)[-2]) - index
    if update.shape[-2] == 1:  # every step of decoding
        return ops.where(ops.equal(source, 0)[:, None], update, buffer)
    length = ops.shape(update)[-2]
    if isinstance(length, int) and length == 0:
        return buffer
    fresh = ops.logical_and(source >= 0, source < length)[:, None]
    return ops.where(fresh, take_nearest_rows(update, source), buffer)


def extend(cache, memory):
    """Appends `key` and `value` [..., T, D] of new positions to a cache.

    Returns:
        The new cache; its `key` and `value` are what the new positions may attend to.
    """
    if grows(cache):
        return {name: ops.concatenate([cache[name], memory[name]], axis=-2) for name in ("key", "value")}
    index = cache["index"]
    length = ops.shape(memory["key"])[-2]
    buffers = {name: write(cache[name], memory[name], index) for name in ("key", "value")}
    return {**buffers, "index": index + length}


def can_shorten(cache):
    """Returns whether a cache holds nothing but keys and values of all positions, so that `without_last` is exact."""
    return {"key", "value"} <= cache.keys() <= {"key", "value", "index"}


def without_last(cache, count):
    """Returns a cache for which `can_shorten` is true without its last `count` positions."""
    if not grows(cache):
        return {**cache, "index": cache["index"] - count}
    return {name: tensor[..., : ops.shape(tensor)[-2] - count, :] for name, tensor in cache.items()}
