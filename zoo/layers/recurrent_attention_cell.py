"""A recurrent cell that attends to a memory before each update (Bahdanau's order)."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="attention_zoo")
class RecurrentAttentionCell(keras.layers.Layer):
    """Decoder cell that attends with its previous state: `c_t = attend(s_{t−1})`, `s_t = cell([x_t; c_t], s_{t−1})`.

    The cell works alone, one step a call, or in `keras.layers.RNN`. The memory it attends to travels among the states,
    so that no call writes to the layer: `states = cell.initial_states(memory, mask, inner_states)`.

    Args:
        cell: A recurrent cell, such as `keras.layers.GRUCell`; its first state is the query.
        attention: A single-head attention layer that follows the contract of `BaseAttention`.
        memory_dim: Last axis of the memory, a positive integer.

    Call arguments:
        inputs: x_t, [B, E].
        states: From `initial_states` or from the step before.
        training: Whether dropout is active.

    Raises:
        ValueError: If the inner cell has dropout, or `RNN` is called without `initial_state`.

    Returns:
        `([s_{t−1}; c_t], states)`: the query and the context that it found, [B, units + memory_dim], and the new
        states. The readout of Bahdanau et al. takes s_{t−1}; s_t is the query of the next step.

    Example:
        >>> import keras, numpy as np
        >>> from zoo.layers import AdditiveAttention, RecurrentAttentionCell
        >>> cell = RecurrentAttentionCell(keras.layers.GRUCell(5), AdditiveAttention(units=7), memory_dim=3)
        >>> cell.build((2, 4))
        >>> states = cell.initial_states(np.ones((2, 11, 3), "float32"), None, [np.zeros((2, 5), "float32")])
        >>> keras.layers.RNN(cell, return_sequences=True)(np.ones((2, 6, 4), "float32"), initial_state=states).shape
        TensorShape([2, 6, 8])

    Reference:
        Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
        section 3.1 and A.2.2, https://arxiv.org/abs/1409.0473
    """

    def __init__(self, cell, attention, memory_dim, **kwargs):
        super().__init__(**kwargs)
        if getattr(cell, "dropout", 0) or getattr(cell, "recurrent_dropout", 0):
            # Keras draws the mask of a cell once for each sequence, but only where `RNN` holds the cell itself.
            raise ValueError(
                "`cell` must have no dropout; drop its inputs out instead. "
                f"Received: dropout={cell.dropout}, recurrent_dropout={cell.recurrent_dropout}."
            )
        if not isinstance(memory_dim, int) or memory_dim < 1:
            raise ValueError(f"`memory_dim` must be a positive integer. Received: memory_dim={memory_dim}.")
        self.cell = cell
        self.attention = attention
        self.memory_dim = memory_dim

    @property
    def inner_state_sizes(self):
        """Sizes of the inner cell's states."""
        size = self.cell.state_size
        return list(size) if isinstance(size, (list, tuple)) else [size]

    @property
    def state_size(self):
        """Sizes of the inner states, then of the memory's projected keys, its values and its mask."""
        return [*self.inner_state_sizes, None, None, None]

    @property
    def output_size(self):
        """Last axis of the output."""
        return self.inner_state_sizes[0] + self.memory_dim

    def build(self, input_shape):
        batch = input_shape[0]
        if not self.cell.built:  # a reloaded one is
            self.cell.build((batch, input_shape[-1] + self.memory_dim))
        if not self.attention.built:
            self.attention.build((batch, 1, self.inner_state_sizes[0]), (batch, None, self.memory_dim))

    def get_initial_state(self, batch_size=None):
        """Refuses: `RNN` asks for it where it was given no states, and there is no default memory."""
        raise ValueError(
            "A memory is needed: call `RNN` with `initial_state=cell.initial_states(memory, memory_mask, "
            "inner_states)`. Received: initial_state=None."
        )

    def initial_states(self, memory, memory_mask, inner_states):
        """Returns the states before the first step.

        Args:
            memory: [B, S, M], M = `memory_dim`; or what the attention's `project_memory` made of it.
            memory_mask: Boolean [B, S], or `None`.
            inner_states: The inner cell's states, each [B, units].
        """
        projected = memory if isinstance(memory, dict) else self.attention.project_memory(memory)
        mask = ops.ones_like(projected["value"][:, :, 0]) if memory_mask is None else memory_mask
        # Recurrent layers cast all states to the compute dtype, hence a mask of zeros and ones.
        return [*inner_states, projected["key"], projected["value"], ops.cast(mask, self.compute_dtype)]

    def call(self, inputs, states, training=None):
        *inner, key, value, mask = states
        context = self.attention(
            ops.expand_dims(inner[0], 1),
            memory={"key": key, "value": value},
            value_mask=ops.cast(mask, "bool"),
            training=training,
        )
        context = ops.squeeze(context, 1)  # [B, M]
        _, new_inner = self.cell(ops.concatenate([inputs, context], axis=-1), list(inner), training=training)
        output = ops.concatenate([inner[0], context], axis=-1)
        return output, [*new_inner, key, value, mask]

    def get_config(self):
        return {
            **super().get_config(),
            "cell": keras.saving.serialize_keras_object(self.cell),
            "attention": keras.saving.serialize_keras_object(self.attention),
            "memory_dim": self.memory_dim,
        }

    @classmethod
    def from_config(cls, config):
        parts = {key: keras.saving.deserialize_keras_object(config[key]) for key in ("cell", "attention")}
        return cls(**{**config, **parts})
