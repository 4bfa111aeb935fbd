"""How the weights of an exported model are stored, and how its graph reads them."""

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from zoo.errors import InputError

KINDS = ("float32", "bfloat16", "int8")
# Smaller ones, such as biases and scales, are not worth the error.
SMALLEST = 256


def store_weights(model: keras.Model, kind: str = "float32") -> tuple[list[tf.Variable], Callable[[], Any]]:
    """Returns the variables that hold a model's weights, and what makes a context in which the model reads them.

    Matrices are stored as they are, in half the space or in a quarter of it, and become float32 in the graph, once in
    each call. In int8 every output of a matrix has a scale of its own, and every symbol of an embedding:
    `w ≈ s · round(w / s)` with `s = max |w| / 127`.

    Args:
        model: The Keras model.
        kind: `"float32"`, `"bfloat16"` or `"int8"`.

    Raises:
        InputError: For another kind.

    Reference:
        Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
        Inference", section 2.1, https://arxiv.org/abs/1712.05877
    """
    if kind not in KINDS:
        raise InputError(f"`weights` must be one of {', '.join(KINDS)}. Received: {kind!r}.")
    if kind == "float32":
        return [variable.value for variable in model.variables], contextlib.nullcontext
    reduce = {"bfloat16": _bfloat16, "int8": _int8}[kind]
    held, readers = [], []
    for variable in model.variables:
        if _is_large_matrix(variable):
            stored, read = reduce(variable)
            held += stored
            readers.append((variable, read))
        else:
            held.append(variable.value)
    return held, lambda: keras.StatelessScope(state_mapping=[(variable, read()) for variable, read in readers])


def _is_large_matrix(variable) -> bool:
    floats = keras.backend.is_float_dtype(variable.dtype)
    return floats and len(variable.shape) > 1 and variable.value.shape.num_elements() >= SMALLEST


def _bfloat16(variable):
    stored = tf.Variable(tf.cast(variable.value, tf.bfloat16), trainable=False)
    return [stored], lambda: tf.cast(stored, variable.dtype)


def _int8(variable):
    value = tf.cast(variable.value, tf.float32)
    kept = 0 if variable.name == "embeddings" else len(variable.shape) - 1
    axes = [axis for axis in range(len(variable.shape)) if axis != kept]
    scale = tf.reduce_max(tf.abs(value), axis=axes, keepdims=True) / 127.0
    scale = tf.where(scale > 0, scale, 1.0)
    stored = tf.Variable(tf.cast(tf.round(value / scale), tf.int8), trainable=False)
    scale = tf.Variable(scale, trainable=False)
    return [stored, scale], lambda: tf.cast(tf.cast(stored, tf.float32) * scale, variable.dtype)
