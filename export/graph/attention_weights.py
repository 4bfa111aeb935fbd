"""Selects the attention weights that a request specifies."""

from typing import Any

import tensorflow as tf

ALL = -(1 << 31)
"""The number that means all layers, or all heads."""

NUMBERS = tf.TensorSpec(None, tf.int32)
"""The inputs `layer` and `head`: a number for all texts, [] or [1], one per text, [B], or several per text, [B, K]."""

DEFAULT = (ALL,)
"""The default of these inputs: one row, because servers that batch require as many rows as texts."""


def chosen(weights: Any, layer: Any, head: Any) -> dict[str, tf.Tensor]:
    """Returns the requested layers and heads of each kind of attention, [B, layers, heads, T, S], float32.

    Texts with different numbers of requested layers or heads can share a batch on a server: the requested ones come
    first, in the order of the request, and zeros pad them to the largest number in the batch.

    Args:
        weights: The attention weights of each kind.
        layer: Layer numbers, counted from 0, or from the end if negative; `ALL` for all layers.
        head: Head numbers, likewise.
    """
    return {
        kind: tf.cast(_take(_take(values, "layer", layer, axis=1), "head", head, axis=2), tf.float32)
        for kind, values in weights.items()
    }


def sizes(weights: Any) -> dict[str, tf.Tensor]:
    """Returns the numbers of layers and heads of each kind of attention, `KIND_size`, int32 [B, 2]."""
    return {
        f"{kind}_size": tf.tile(tf.shape(values)[None, 1:3], [tf.shape(values)[0], 1])
        for kind, values in weights.items()
    }


def expected_sizes(weights: dict[str, Any]) -> dict[str, list[list[int]]]:
    """Returns the result of `sizes` for weights by kind, as nested lists [B, layers, heads, T, S]."""
    return {f"{kind}_size": [[len(layers), len(layers[0])] for layers in values] for kind, values in weights.items()}


def one_for_each_text(name: str, numbers: tf.Tensor, texts: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns one number per text, [B], in 0 … `size` − 1; negative ones count from the end. The graph checks them."""
    rows = _rows(name, tf.cast(numbers, tf.int32), texts, size)
    checks = [
        tf.debugging.Assert(
            tf.shape(rows)[1] == 1, [f"`{name}` must be one number for a text; received", tf.shape(rows)[1]]
        ),
        tf.debugging.Assert(tf.reduce_all(rows != ALL), [f"`{name}` must be a number for each text, and not all"]),
    ]
    with tf.control_dependencies(checks):
        return tf.math.floormod(rows[:, 0], size)


def _take(values: tf.Tensor, name: str, numbers: Any, axis: int) -> tf.Tensor:
    """Returns the entries of `values` along an axis that each text requests by number, padded with zeros."""
    size = tf.shape(values)[axis]
    rows = _rows(name, tf.cast(numbers, tf.int32), tf.shape(values)[0], size)
    is_all, count = tf.reduce_any(rows == ALL, axis=1, keepdims=True), tf.shape(rows)[1]
    width = tf.where(tf.reduce_any(is_all), size, count)
    places = tf.range(width)[None]
    numbered = tf.pad(tf.math.floormod(rows, size), [[0, 0], [0, width - count]])
    taken = tf.gather(values, tf.where(is_all, places, numbered), axis=axis, batch_dims=1)
    requested = tf.broadcast_to(is_all | (places < count), tf.shape(numbered))
    requested = requested[:, :, None, None, None] if axis == 1 else requested[:, None, :, None, None]
    return tf.where(requested, taken, tf.zeros([], taken.dtype))


def _rows(name: str, numbers: tf.Tensor, texts: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns the numbers of each text, [B, K]; the graph checks that they are for B texts and within range."""
    # A scalar is one row with one number, and a vector is rows with one number each.
    shape = tf.concat([tf.shape(numbers), tf.fill([2], 1)], axis=0)
    rows, count = shape[0], tf.reduce_prod(shape[1:])
    valid = (numbers == ALL) | ((-size <= numbers) & (numbers < size))
    checks = [
        tf.debugging.Assert(
            (rows == 1) | (rows == texts), [f"`{name}` must be one, or one for each of", texts, "texts; received", rows]
        ),
        tf.debugging.Assert(count <= size, [f"`{name}` must be at most", size, "for a text; received", count]),
        tf.debugging.Assert(
            tf.reduce_all(valid), [f"`{name}` must be less than", size, "and at least", -size, "; received", numbers]
        ),
    ]
    with tf.control_dependencies(checks):
        return tf.broadcast_to(tf.reshape(numbers, [rows, count]), [texts, count])
