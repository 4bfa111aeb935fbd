"""Key/value caches for incremental decoding: arguments and results, never state of a layer.

A cache is a dict with `key` [..., L, D] and `value` [..., L, D], where L is the room for positions, and `index`, the
number of positions filled so far (int32 scalar).
"""

from keras import ops


def write(buffer, update, index):
    """Returns `buffer` [..., L, D] with `update` [..., T, D] written at the positions `index` … `index + T − 1`.

    A gather and a select rather than a slice update: Keras' slice update needs XLA on the TensorFlow backend.
    """
    source = ops.arange(ops.shape(buffer)[-2]) - index
    length = ops.shape(update)[-2]
    fresh = ops.logical_and(source >= 0, source < length)[:, None]
    return ops.where(fresh, ops.take(update, ops.clip(source, 0, length - 1), axis=-2), buffer)


def extend(cache, memory):
    """Appends the projections of new positions to a cache.

    Args:
        cache: The cache.
        memory: `key` and `value` [..., T, D] of the new positions.

    Returns:
        The new cache; its `key` and `value` are what the new positions may attend to.
    """
    index = cache["index"]
    length = ops.shape(memory["key"])[-2]
    buffers = {name: write(cache[name], memory[name], index) for name in ("key", "value")}
    return {**buffers, "index": index + length}
