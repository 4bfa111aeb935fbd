"""How the weights of an exported model are stored, and how its graph reads them."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from zoo.layers.core.constants import computed_constants
from zoo.models.shared.embeddings import layers_of_steps
from zoo.stored_weights import is_large_matrix, restored, rounded


def store_weights(model: keras.Model, kind: str = "float32") -> tuple[list[tf.Variable], Callable[[], Any]]:
    """Returns the variables that hold a model's weights, and what makes a context in which the model reads them.

    Large matrices are stored in their own type, `"bfloat16"` or `"int8"`, in half of the space or in a quarter of it
    (see `zoo.stored_weights`); the graph makes float32 of them once in each call. In `"float32"`, what steps of
    decoding need of the weights is stored besides: the matrix of an embedding that also gives the logits, transposed,
    and the maps of self-attention to queries, keys and values side by side.
    """
    if kind == "float32":
        layers = layers_of_steps(model)
        constants = keras.tree.map_structure(
            lambda tensor: None if tensor is None else tf.Variable(tensor, trainable=False),
            [layer.constant() for layer in layers],
        )
        held = [variable.value for variable in model.variables]
        held += [variable for variable in keras.tree.flatten(constants) if variable is not None]
        return held, lambda: computed_constants(layers, constants)
    stored: list[tf.Variable] = []
    matrices: list[tuple[keras.Variable, tf.Variable, tf.Variable | None]] = []
    for variable in model.variables:
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
