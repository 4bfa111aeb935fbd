"""Key/value caches for incremental decoding: arguments and results, never state of a layer.

A cache is a dict with `key` [..., L, D] and `value` [..., L, D], of one of three kinds. A *fixed* cache has capacity
for L positions, of which `index` (int32 scalar) are filled: all sizes are known, as XLA and JAX require. A *growing*
cache has no `index`: L is the number of its positions. Of `index` positions, a *rolling* cache contains those to which
later queries may attend, the first F and the last L − F; `real` [B, L] is True where it is filled and not masked.

The rows of a growing cache may have different numbers of positions, `lengths` int32 [B], which are the last ones of L.
The cache then contains `filled` [B, L + T] for a call that appends T positions, True at the positions of each row.
"""

import operator

from keras import ops

from zoo.layers.attention.query_blocks import take_nearest_rows
from zoo.layers.core.lazy import computed_from, length_of
from zoo.row_selection import take, take_per_row


def next_position(cache):
    """Returns the position of the next token: the number of positions so far, perhaps `Lazy` in a growing cache."""
    return length_of(cache["key"], -2) if is_growing(cache) else cache["index"]


def is_growing(cache):
    """Returns whether the cache grows with every position."""
    return "index" not in cache


def is_rolling(cache):
    """Returns whether the cache drops positions to which no later query may attend."""
    return "real" in cache


def check_rolling_step(queries, added):
    """Checks that there are no more queries than new keys: the cache no longer has all keys of earlier queries.

    Raises:
        ValueError: If there are more queries than new keys.
    """
    if isinstance(queries, int) and isinstance(added, int) and queries > added:
        raise ValueError(
            "A rolling cache no longer contains the keys of earlier queries: pass at least as many values as queries. "
            f"Received: {queries} queries and {added} values."
        )


def append_rolling(cache, memory, real=None, first=0):
    """Appends `key` and `value` [..., T, D] of new positions to a rolling cache, which never drops the `first` ones.

    `real` [B, T] is False at new positions that are masked; by default none is.

    Returns:
        `key`, `value`, `real` and `positions` of all that the new positions may attend to, and the new cache. A
        position that is both among the first and among the last ones is real only among the first.
    """
    last = cache["real"].shape[1] - first
    if real is None:
        real = ops.ones((ops.shape(cache["real"])[0], ops.shape(memory["value"])[-2]), dtype="bool")
    index, added = cache["index"], ops.shape(real)[1]
    columns = {"real": real[:, :, None]}  # positions on the last axis but one, like those of keys and values
    joined = {name: _joined(cache, name, new, first) for name, new in {**memory, **columns}.items()}
    remaining = ops.arange(last, dtype="int32") + first + added
    if first:
        remaining = ops.concatenate([ops.arange(first, dtype="int32"), remaining])
    new_cache = {name: take(tensor, remaining, axis=-2) for name, tensor in joined.items()}
    new_cache |= {"real": new_cache["real"][..., 0], "index": index + added}
    positions = ops.arange(last + added, dtype="int32") + (index - last)
    is_real = joined.pop("real")[..., 0]
    if first:
        positions = ops.concatenate([ops.arange(first, dtype="int32"), positions])
        is_first = ops.arange(ops.shape(positions)[0], dtype="int32") < first
        is_real = ops.logical_and(is_real, ops.logical_or(is_first, positions >= first))
    return {**joined, "real": is_real, "positions": positions}, new_cache


def _joined(cache, name, new, first):
    """Returns the first positions, into which new ones may be written, then the last ones, then the new ones."""
    rows = cache[name][:, :, None] if name == "real" else cache[name]
    if not first:
        return ops.concatenate([rows, new], axis=-2)
    front = write(rows[..., :first, :], new, cache["index"])
    return ops.concatenate([front, rows[..., first:, :], new], axis=-2)


def capacity_after(cache, length):
    """Returns L after `length` positions are appended; `Lazy` if it is unknown."""
    capacity = length_of(cache["key"], -2)
    return computed_from(operator.add, capacity, length) if is_growing(cache) else capacity


def first_query_position(position, added, queries):
    """Returns the position of the first query; the queries are the last of `added` keys, which begin at `position`.

    In decoding there are as many queries as new keys, and nothing is computed.
    """
    if isinstance(added, int) and isinstance(queries, int) and added == queries:
        return position
    return computed_from(lambda position, added, queries: position + added - queries, position, added, queries)


def write(buffer, update, index):
    """Returns `buffer` [..., L, D] with `update` [..., T, D] written at the positions `index` … `index + T − 1`.

    It is a select rather than a slice update, because Keras' slice update requires XLA on the TensorFlow backend.
    """
    source = ops.arange(ops.shape(buffer)[-2], dtype="int32") - index
    if update.shape[-2] == 1:  # every step of decoding
        return ops.where(ops.equal(source, 0)[:, None], update, buffer)
    length = ops.shape(update)[-2]
    if isinstance(length, int) and length == 0:
        return buffer
    is_new = ops.logical_and(source >= 0, source < length)[:, None]
    return ops.where(is_new, take_nearest_rows(update, source), buffer)


def append(cache, memory):
    """Appends `key` and `value` [..., T, D] of new positions to a fixed or growing cache.

    Returns:
        The new cache; its `key` and `value` are what the new positions may attend to.
    """
    if is_growing(cache):
        return {name: ops.concatenate([cache[name], memory[name]], axis=-2) for name in ("key", "value")}
    buffers = {name: write(cache[name], memory[name], cache["index"]) for name in ("key", "value")}
    return {**buffers, "index": cache["index"] + ops.shape(memory["key"])[-2]}


def at_places(cache, places):
    """Returns a growing cache of the positions at `places` of each row, int32 [B, L]."""
    return {name: take_per_row(tensor, places, axis=-2) for name, tensor in cache.items()}
