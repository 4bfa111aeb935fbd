"""A recurrent cell that attends to a memory before each update (Bahdanau's order)."""

import keras
from keras import ops

from zoo.layers.recurrent.base_cell import BaseAttentionCell

READOUT_STATES = ("previous", "new")


@keras.saving.register_keras_serializable(package="attention_zoo")
class RecurrentAttentionCell(BaseAttentionCell):
    """Decoder cell that attends with its previous state, and then updates the state with the context.

    For step t, with x_t the embedding of the previous token and h_1 … h_S the memory (the annotations):

        e_j = score(s_{t−1}, h_j)                    with `AdditiveAttention`: v · tanh(W₁ s_{t−1} + W₂ h_j + b)
        α_t = softmax(e)                             [B, S], the alignment
        c_t = Σ_j α_{t,j} h_j                        [B, M], the context
        s_t = cell([x_t; c_t], s_{t−1})              [B, units]

    In a stack, s is the state of the top cell, and the bottom cell reads the context.

    Args:
        cell: A recurrent cell, such as `keras.layers.GRUCell`, or a list of them, from the bottom to the top, without
            dropout. The first state of the top cell is the query.
        attention: An attention layer that follows the contract of `BaseAttention`.
        memory_dim: Last axis of the memory, a positive integer.
        return_attention_scores: Whether the output ends with the weights of the attention; see `BaseAttentionCell`.
        readout_state: State in the output: `"previous"`, s_{t−1}, as in Bahdanau et al., or `"new"`, s_t.

    Call arguments and states: see `BaseAttentionCell`.

    Returns:
        `([s_{t−1}; c_t], states)`, with `readout_state="new"` `([s_t; c_t], states)`: [B, units + C], and the new
        states, whose s_t is the query of the next step.

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
        sections 3.1 (s_t, equation 4) and A.2.2 (s_{t−1}), https://arxiv.org/abs/1409.0473
    """

    saved_options = ("readout_state",)

    def __init__(self, cell, attention, memory_dim, return_attention_scores=False, readout_state="previous", **kwargs):
        super().__init__(cell, attention, memory_dim, return_attention_scores, **kwargs)
        if readout_state not in READOUT_STATES:
            raise ValueError(
                f"`readout_state` must be {' or '.join(READOUT_STATES)}. Received: readout_state={readout_state!r}."
            )
        self.readout_state = readout_state

    @property
    def step_size(self):
        return self.query_dim + self.context_dim

    @property
    def cell_input_dim(self):
        return self.context_dim

    def step(self, inputs, states, attend, update, product=None):
        query = states[self.query_index]  # s_{t−1}
        context, weights = attend(query)  # c_t, α_t
        states = update(ops.concatenate([inputs, context], axis=-1), states)  # s_t
        readout = query if self.readout_state == "previous" else states[self.query_index]
        return ops.concatenate([readout, context], axis=-1), weights, states
