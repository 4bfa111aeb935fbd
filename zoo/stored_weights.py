"""Stores weights in lower precision than that of training."""

import math
from typing import Any

import keras
from keras import ops

from zoo.errors import InputError

KINDS = ("float32", "bfloat16", "int8")
# Smaller weights, such as biases and scales, are not rounded.
MIN_SIZE = 256


def check_kind(kind: str) -> None:
    """Raises an `InputError` unless `kind` is one of `KINDS`."""
    if kind not in KINDS:
        raise InputError(f"`weights` must be one of {', '.join(KINDS)}. Received: {kind!r}.")


def is_large_matrix(variable: keras.Variable) -> bool:
    """Returns whether a weight is large enough to be rounded."""
    sizes = tuple(variable.shape)
    floats = keras.backend.is_float_dtype(variable.dtype)
    return floats and len(sizes) > 1 and math.prod(sizes) >= MIN_SIZE


def rounded(variable: keras.Variable, kind: str) -> tuple[Any, Any]:
    """Returns the stored form of a matrix and its scale, which is `None` for bfloat16.

    In int8, every output of a matrix and every token of an embedding has its own scale:
    `w ≈ s · round(w / s)` with `s = max |w| / 127`.

    Reference:
        Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
        Inference", section 2.1, https://arxiv.org/abs/1712.05877
    """
    if kind == "bfloat16":
        return ops.cast(variable.value, "bfloat16"), None
    value = ops.cast(variable.value, "float32")
    scaled_axis = 0 if variable.name == "embeddings" else len(variable.shape) - 1
    axes = [axis for axis in range(len(variable.shape)) if axis != scaled_axis]
    scale = ops.max(ops.abs(value), axis=axes, keepdims=True) / 127.0
    scale = ops.where(scale > 0, scale, 1.0)
    return ops.cast(ops.round(value / scale), "int8"), scale


def restored(stored: Any, scale: Any, dtype: str) -> Any:
    """Returns the matrix for the model, given the results of `rounded`."""
    if scale is None:
        return ops.cast(stored, dtype)
    return ops.cast(ops.cast(stored, "float32") * scale, dtype)


def round_weights(model: keras.Model, kind: str) -> None:
    """Rounds a model's matrices to the values that they have when stored in lower precision.

    Raises:
        InputError: For an unknown kind.
    """
    check_kind(kind)
    for variable in model.variables if kind != "float32" else ():
        if is_large_matrix(variable):
            stored, scale = rounded(variable, kind)
            variable.assign(restored(stored, scale, variable.dtype))
