"""Weights in fewer bits than they were trained in."""

import math

import keras
from keras import ops

from zoo.errors import InputError

KINDS = ("float32", "bfloat16", "int8")
# Smaller ones, such as biases and scales, are not worth the error.
SMALLEST = 256


def check_kind(kind: str) -> None:
    """Raises an `InputError` unless weights can be stored so."""
    if kind not in KINDS:
        raise InputError(f"`weights` must be one of {', '.join(KINDS)}. Received: {kind!r}.")


def is_large_matrix(variable: keras.Variable) -> bool:
    """Returns whether a weight is one of those that are rounded."""
    sizes = tuple(variable.shape)
    floats = keras.backend.is_float_dtype(variable.dtype)
    return floats and len(sizes) > 1 and math.prod(sizes) >= SMALLEST


def rounded(variable: keras.Variable, kind: str) -> tuple:
    """Returns what a matrix is stored as, and its scale, which is `None` for bfloat16.

    In int8 every output of a matrix has a scale of its own, and every symbol of an embedding:
    `w ≈ s · round(w / s)` with `s = max |w| / 127`.

    Args:
        variable: The matrix.
        kind: `"bfloat16"` or `"int8"`.

    Reference:
        Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
        Inference", section 2.1, https://arxiv.org/abs/1712.05877
    """
    if kind == "bfloat16":
        return ops.cast(variable.value, "bfloat16"), None
    value = ops.cast(variable.value, "float32")
    kept = 0 if variable.name == "embeddings" else len(variable.shape) - 1
    axes = [axis for axis in range(len(variable.shape)) if axis != kept]
    scale = ops.max(ops.abs(value), axis=axes, keepdims=True) / 127.0
    scale = ops.where(scale > 0, scale, 1.0)
    return ops.cast(ops.round(value / scale), "int8"), scale


def restored(stored, scale, dtype):
    """Returns a matrix as the model reads it, from what `rounded` returned."""
    if scale is None:
        return ops.cast(stored, dtype)
    return ops.cast(ops.cast(stored, "float32") * scale, dtype)


def round_weights(model: keras.Model, kind: str) -> None:
    """Changes a model's matrices to what they are when stored in fewer bits.

    Args:
        model: The model.
        kind: `"float32"` (they stay as they are), `"bfloat16"` or `"int8"`.

    Raises:
        InputError: For another kind.
    """
    check_kind(kind)
    for variable in model.variables if kind != "float32" else ():
        if is_large_matrix(variable):
            stored, scale = rounded(variable, kind)
            variable.assign(restored(stored, scale, variable.dtype))
