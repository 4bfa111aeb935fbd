"""Learned position encodings."""

import keras
from keras import ops

from zoo.layers.core.checks import check_size
from zoo.layers.positions.absolute import AbsolutePositions
from zoo.row_selection import take


@keras.saving.register_keras_serializable(package="attention_zoo")
class LearnedPositions(AbsolutePositions):
    """Adds or concatenates a learned vector for each position: `x_p + E[p]` or `[x_p; E[p]]`.

    Positions after the last row of the table get that row, and negative positions the first one. In an attention layer
    the queries are at the end of the keys: if there are more queries than keys, the first ones have negative positions
    and therefore the same vector. With `start_index=0` queries and keys both count from 0.

    Args:
        max_length: Rows of the table, a positive integer.
        concatenate: Whether the vectors are concatenated with the features instead of added.
        size: Size of concatenated vectors, a positive integer. Default: as many as there are features.
        initializer: Initializer of the table.

    Call arguments:
        inputs: [B, T, D].
        start_index: Position of the first row, an integer or a scalar tensor.
        positions: Positions of the rows in its place, integers [T] or [B, T], such as those of packed texts.

    Returns:
        [B, T, D]; concatenated [B, T, D + size].

    Raises:
        ValueError: If the inputs are known to be longer than the table (on PyTorch their length is never known); or if,
            in an attention layer, queries and keys of different sizes would need separate tables.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import LearnedPositions
        >>> LearnedPositions(max_length=7)(np.zeros((2, 3, 4), "float32")).shape
        TensorShape([2, 3, 4])

    Reference:
        Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", section 3.1, https://arxiv.org/abs/1705.03122
    """

    saved_options = ("max_length", "initializer")

    def __init__(self, max_length, concatenate=False, size=None, initializer="glorot_uniform", **kwargs):
        super().__init__(concatenate=concatenate, size=size, **kwargs)
        self.max_length = check_size("max_length", max_length)
        self.initializer = keras.initializers.get(initializer)

    def create_weights(self, query_dim, memory_dim):
        if self.size is None and query_dim != memory_dim:
            raise ValueError(
                f"Queries and keys of different sizes need `concatenate=True` and a `size`. "
                f"Received: query_dim={query_dim}, memory_dim={memory_dim}."
            )
        self.embeddings = self.add_weight(
            name="embeddings", shape=(self.max_length, self.size or query_dim), initializer=self.initializer
        )

    def encodings(self, positions, size):
        return take(self.embeddings, ops.clip(positions, 0, self.max_length - 1))

    def encode(self, inputs, start_index=0):
        first = start_index if isinstance(start_index, int) else 0
        length = inputs.shape[1]
        # On PyTorch a length is never known: Keras traces there with made-up ones.
        known = isinstance(length, int) and keras.backend.backend() != "torch"
        if known and first + length > self.max_length:
            raise ValueError(
                f"`max_length` must be at least {first + length} for these inputs. Received: "
                f"max_length={self.max_length}, start_index={start_index}, inputs.shape={tuple(inputs.shape)}."
            )
        return super().encode(inputs, start_index)
