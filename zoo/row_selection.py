"""Nested tensors whose first axis counts rows; scalars among them belong to no row."""

import keras
from keras import ops


def repeat_rows(nested, times):
    """Returns the nested tensors with every row repeated `times` times in place; scalars are left alone."""
    if times == 1:
        return nested
    return keras.tree.map_structure(lambda x: ops.repeat(x, times, axis=0) if len(x.shape) else x, nested)


def take_from_rows(values, places):
    """Returns, for values [B, M, ...] and places [B, K], those of each row, [B, K, ...].

    Keras' `take_along_axis` turns its tensors round three times; nine calls of it were a twentieth of a beam search.
    """
    batch, size, *sizes = ops.shape(values)
    numbers = ops.arange(batch, dtype="int32")[:, None] * size + places
    return ops.take(ops.reshape(values, (batch * size, *sizes)), numbers, axis=0)


def take_rows(nested, rows):
    """Returns the nested tensors with the rows of these numbers, int32 [R], alone; scalars are left alone."""
    return keras.tree.map_structure(lambda x: ops.take(x, rows, axis=0) if len(x.shape) else x, nested)
