"""Stores the weights of an exported model, and makes its graph read them."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from zoo.layers.core.constants import computed_constants
from zoo.models.shared.embeddings import layers_of_steps
from zoo.stored_weights import is_large_matrix, restored, rounded


def store_weights(models: Sequence[keras.Model], kind: str = "float32") -> tuple[list[tf.Variable], Callable[[], Any]]:
    """Returns variables with the weights of models, and a function that returns a context in which these read them.

    With `"bfloat16"` or `"int8"`, large matrices are stored in that type, in half or a quarter of the space (see
    `zoo.stored_weights`); the graph converts them to float32 once per call. With `"float32"`, tensors for decoding
    steps that are computed from the weights are stored, too: the transposed matrix of an embedding that also computes
    the logits, and the concatenated query, key and value projections of self-attention.
    """
    variables = [variable for model in models for variable in model.variables]
    if kind == "float32":
        layers = layers_of_steps(*models)
        constants = keras.tree.map_structure(
            lambda tensor: None if tensor is None else tf.Variable(tensor, trainable=False),
            [layer.constant() for layer in layers],
        )
        tensors = [variable.value for variable in variables]
        tensors += [variable for variable in keras.tree.flatten(constants) if variable is not None]
        return tensors, lambda: computed_constants(layers, constants)
    stored: list[tf.Variable] = []
    matrices: list[tuple[keras.Variable, tf.Variable, tf.Variable | None]] = []
    for variable in variables:
        if is_large_matrix(variable):
            parts = rounded(variable, kind)
            values, scale = (None if part is None else tf.Variable(part, trainable=False) for part in parts)
            matrices.append((variable, values, scale))
            stored += [values] if scale is None else [values, scale]
        else:
            stored.append(variable.value)
    return stored, lambda: keras.StatelessScope(
        state_mapping=[(variable, restored(values, scale, variable.dtype)) for variable, values, scale in matrices]
    )
