"""Operations on rows of nested tensors, i.e. along their first axis; scalars are not changed."""

import importlib
from typing import Any

import keras
from keras import ops


def repeat_rows(nested: Any, times: int) -> Any:
    """Returns the nested tensors with every row repeated `times` times in place; scalars are not changed."""
    if times == 1:
        return nested
    return keras.tree.map_structure(lambda x: ops.repeat(x, times, axis=0) if len(x.shape) else x, nested)


def take_rows(nested: Any, indices: Any) -> Any:
    """Returns the rows of the nested tensors at `indices` ≥ 0, int32 [R]; scalars are not changed."""
    return keras.tree.map_structure(lambda x: take(x, indices) if len(x.shape) else x, nested)


def take(values: Any, indices: Any, axis: int = 0) -> Any:
    """Returns `ops.take(values, indices, axis)` for non-negative indices.

    Keras on TensorFlow also supports negative indices, which costs four more operations, and on PyTorch it squeezes an
    axis of any size, which ONNX does not allow.
    """
    is_symbolic = isinstance(values, keras.KerasTensor) or isinstance(indices, keras.KerasTensor)
    if keras.backend.backend() == "tensorflow" and not is_symbolic:
        return importlib.import_module("tensorflow").gather(values, indices, axis=axis)
    if keras.backend.backend() == "torch" and not is_symbolic:
        values, indices = ops.convert_to_tensor(values), ops.convert_to_tensor(indices)
        axis = axis % values.ndim
        taken = values.index_select(axis, indices.ravel())
        return taken.reshape(*values.shape[:axis], *indices.shape, *values.shape[axis + 1 :])
    return ops.take(values, indices, axis=axis)


def take_per_row(values: Any, indices: Any, axis: int = 1) -> Any:
    """Returns `values[b, indices[b, k]]`, [B, K, ...] from values [B, M, ...] and indices [B, K]; or of another axis.

    Keras' `take_along_axis` transposes its tensors three times, which took 5 % of the time of beam search. TensorFlow
    has a single operation.
    """
    if keras.backend.backend() == "tensorflow":
        return importlib.import_module("tensorflow").gather(values, indices, axis=axis, batch_dims=1)
    if axis % len(values.shape) != 1:
        shape = [1] * len(values.shape)
        shape[0], shape[axis] = ops.shape(indices)
        return ops.take_along_axis(values, ops.reshape(indices, shape), axis=axis)
    batch, size, *sizes = ops.shape(values)
    flat_indices = ops.arange(batch, dtype="int32")[:, None] * size + indices
    return ops.take(ops.reshape(values, (batch * size, *sizes)), flat_indices, axis=0)
