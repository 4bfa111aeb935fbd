"""A recurrent cell that attends to a memory between two updates of a step (Nematus' conditional GRU)."""

import keras
from keras import ops

from zoo.layers.core.checks import check_cell
from zoo.layers.recurrent.bahdanau_cell import RecurrentAttentionCell
from zoo.layers.recurrent.base_cell import check_no_dropout
from zoo.layers.recurrent.loops import deferred_step, deferred_weights
from zoo.layers.recurrent.states import state_sizes


@keras.saving.register_keras_serializable(package="attention_zoo")
class ConditionalAttentionCell(RecurrentAttentionCell):
    """Decoder cell that is updated with the previous token, attends, and is updated with the context.

    For step t, with x_t the embedding of the previous token and h_1 … h_S the memory:

        s'_t = cell(x_t, s_{t−1})                    [B, units]
        α_t = softmax(score(s'_t, h))                [B, S], the alignment
        c_t = Σ_j α_{t,j} h_j                        [B, M], the context
        s_t = context_cell(c_t, s'_t)                [B, units]

    The query depends on the previous token, as in Luong's cell, and the new state on the context, as in Bahdanau's.

    Args:
        cell: A recurrent cell with one state, such as `keras.layers.GRUCell`, or a list of cells, from the bottom to
            the top, of which the top one has one state; without dropout.
        attention: An attention layer that follows the contract of `BaseAttention`.
        memory_dim: Last axis of the memory, a positive integer.
        return_attention_scores: Whether the output ends with the weights of the attention; see `BaseAttentionCell`.
        readout_state: State in the output: `"previous"`, s_{t−1}, or `"new"`, s_t, as in Nematus.
        context_cell: Another cell with one state, of the size of the top cell's, such as a `DeepTransitionCell`.

    Call arguments and states: see `BaseAttentionCell`.

    Returns:
        `([s_t; c_t], states)`, with `readout_state="previous"` `([s_{t−1}; c_t], states)`: [B, units + C], and the new
        states.

    Raises:
        ValueError: If the top cell or `context_cell` has several states, or their sizes differ.

    Example:
        >>> import keras, numpy as np
        >>> from zoo.layers import AdditiveAttention, AttentionRNN, ConditionalAttentionCell
        >>> cell = ConditionalAttentionCell(
        ...     keras.layers.GRUCell(5), AdditiveAttention(7), memory_dim=3, context_cell=keras.layers.GRUCell(5)
        ... )
        >>> AttentionRNN(cell)(np.ones((2, 6, 4), "float32"), np.ones((2, 11, 3), "float32")).shape
        TensorShape([2, 6, 8])

    Reference:
        Sennrich et al. 2017, "Nematus: a Toolkit for Neural Machine Translation", section 2 (the conditional GRU),
        https://arxiv.org/abs/1703.04357
    """

    saved_options = ("context_cell",)

    def __init__(
        self,
        cell,
        attention,
        memory_dim,
        return_attention_scores=False,
        readout_state="new",
        *,
        context_cell,
        **kwargs,
    ):
        super().__init__(cell, attention, memory_dim, return_attention_scores, readout_state, **kwargs)
        self.context_cell = check_cell(context_cell)
        check_no_dropout("context_cell", context_cell)
        sizes = state_sizes(self._inner_cells()[-1]), state_sizes(context_cell)
        if len(sizes[0]) > 1 or sizes[0] != sizes[1]:
            raise ValueError(
                "`context_cell` updates the state of the top cell: both must have one state, of the same size. "
                f"Received: states of sizes {sizes[0]} and {sizes[1]}."
            )

    @property
    def cell_input_dim(self):
        return 0

    def build(self, input_shape):
        super().build(input_shape)
        if not self.context_cell.built:  # a reloaded layer is built already
            self.context_cell.build((input_shape[0], self.context_dim))

    def deferred_weights(self):
        weights, own = super().deferred_weights(), deferred_weights(self.context_cell, "context")
        unsupported = weights is None or own is None or self.context_cell.compute_dtype != self.compute_dtype
        return None if unsupported else {**weights, **own}

    def step(self, inputs, states, attend, update, product=None):
        previous = states[self.query_index]  # s_{t−1}
        states = update(inputs, states)
        intermediate = states[self.query_index]  # s'_t
        context, weights = attend(intermediate)  # c_t, α_t
        if product is None:
            _, new = self.context_cell(context, [intermediate])
            (new,) = keras.tree.flatten(new)
        else:
            (new,) = deferred_step(self.context_cell, "context", context, [intermediate], product)
        readout = previous if self.readout_state == "previous" else new
        return ops.concatenate([readout, context], axis=-1), weights, [*states[:-1], new]
