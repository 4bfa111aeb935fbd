"""Which attention weights a request asks for."""

from typing import Any

import tensorflow as tf

NUMBERS = tf.TensorSpec(None, tf.int32)
"""The inputs `layer` and `head`: a number or several."""


def chosen(weights: Any, layer: Any, head: Any) -> dict[str, tf.Tensor]:
    """Returns of each kind of attention, [B, layers, heads, T, S], the layers and heads that are asked for, float32.

    Args:
        weights: The attention weights of each kind.
        layer: Numbers of layers, counted from 0, or from the end if they are negative; none for all layers.
        head: Numbers of heads, likewise.
    """
    return {
        kind: tf.cast(_take(_take(values, "layer", layer, axis=1), "head", head, axis=2), tf.float32)
        for kind, values in weights.items()
    }


def _take(values: tf.Tensor, name: str, numbers: Any, axis: int) -> tf.Tensor:
    """Returns the parts of values along an axis that have these numbers, all if there are none."""
    numbers, size = tf.reshape(tf.cast(numbers, tf.int32), [-1]), tf.shape(values)[axis]
    valid = tf.reduce_all((-size <= numbers) & (numbers < size))
    check = tf.debugging.Assert(
        valid, [f"`{name}` must be less than", size, "and at least", -size, "; received", numbers]
    )
    with tf.control_dependencies([check]):
        everything = tf.range(tf.where(tf.size(numbers) == 0, size, 0))
    return tf.gather(values, tf.concat([tf.math.floormod(numbers, size), everything], axis=0), axis=axis)
