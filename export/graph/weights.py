"""How the weights of an exported model are stored, and how its graph reads them."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from zoo.models.shared.embeddings import tied_tables, transposed_tables
from zoo.stored_weights import check_kind, is_large_matrix, restored, rounded


def store_weights(model: keras.Model, kind: str = "float32") -> tuple[list[tf.Variable], Callable[[], Any]]:
    """Returns the variables that hold a model's weights, and what makes a context in which the model reads them.

    Matrices are stored as they are, in half the space or in a quarter of it (see `zoo.stored_weights`), and become
    float32 in the graph, once in each call. As they are, a table that also gives the logits is stored a
    second time, transposed.

    Args:
        model: The Keras model.
        kind: `"float32"`, `"bfloat16"` or `"int8"`.

    Raises:
        InputError: For another kind.
    """
    check_kind(kind)
    if kind == "float32":
        kernels = [tf.Variable(table.transposed(), trainable=False) for table in tied_tables(model)]
        held = [variable.value for variable in model.variables] + kernels
        return held, lambda: transposed_tables(model, kernels)
    held, readers = [], []
    for variable in model.variables:
        if is_large_matrix(variable):
            parts = [tf.Variable(part, trainable=False) for part in rounded(variable, kind) if part is not None]
            held += parts
            readers.append((variable, parts))
        else:
            held.append(variable.value)

    def read(variable, stored, scale=None):
        return restored(stored, scale, variable.dtype)

    return held, lambda: keras.StatelessScope(
        state_mapping=[(variable, read(variable, *parts)) for variable, parts in readers]
    )
