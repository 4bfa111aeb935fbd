"""A recurrent cell that attends to a memory after each update (Luong's order)."""

import keras
from keras import ops

from zoo.layers.core.checks import check_size
from zoo.layers.recurrent.base_cell import BaseAttentionCell


@keras.saving.register_keras_serializable(package="attention_zoo")
class LuongAttentionCell(BaseAttentionCell):
    """Decoder cell that first updates its state, and then attends with the new state.

    For step t, with x_t the embedding of the previous token and h_1 … h_S the memory:

        s_t = cell([x_t; h̃_{t−1}], s_{t−1})          [B, units]; without input feeding cell(x_t, s_{t−1})
        α_t = softmax(score(s_t, h))                 [B, S], the alignment
        c_t = Σ_j α_{t,j} h_j                        [B, M], the context
        h̃_t = tanh(W_c [c_t; s_t])                   [B, attentional_dim], the attentional vector; h̃_0 = 0

    In a stack, s is the state of the top cell, and the bottom cell reads h̃.

    Args:
        cell: A recurrent cell, such as `keras.layers.LSTMCell`, or a list of them, from the bottom to the top,
            without dropout. The first state of the top cell is the query.
        attention: An attention layer that follows the contract of `BaseAttention`.
        memory_dim: Last axis of the memory, a positive integer.
        return_attention_scores: Whether the output ends with the weights of the attention; see `BaseAttentionCell`.
        attentional_dim: Size of h̃, a positive integer. Default: the size of s.
        input_feeding: Whether the cell reads h̃_{t−1} besides x_t; h̃ is then a state.

    Call arguments and states: see `BaseAttentionCell`.

    Returns:
        `(h̃_t, states)`, h̃_t [B, attentional_dim].

    Example:
        >>> import keras, numpy as np
        >>> from zoo.layers import AdditiveAttention, LuongAttentionCell
        >>> cell = LuongAttentionCell(
        ...     [keras.layers.LSTMCell(5), keras.layers.LSTMCell(5)], AdditiveAttention(units=7), memory_dim=3
        ... )
        >>> cell.build((2, 4))
        >>> states = cell.initial_states(np.ones((2, 11, 3), "float32"))
        >>> keras.layers.RNN(cell, return_sequences=True)(np.ones((2, 6, 4), "float32"), initial_state=states).shape
        TensorShape([2, 6, 5])

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", sections 3 (equation 5)
        and 3.3, https://arxiv.org/abs/1508.04025
    """

    saved_options = ("attentional_dim", "input_feeding")

    def __init__(
        self,
        cell,
        attention,
        memory_dim,
        return_attention_scores=False,
        attentional_dim=None,
        input_feeding=True,
        **kwargs,
    ):
        super().__init__(cell, attention, memory_dim, return_attention_scores, **kwargs)
        self.attentional_dim = check_size("attentional_dim", attentional_dim, optional=True)
        self.input_feeding = input_feeding
        self.attentional_dense = keras.layers.Dense(
            self.step_size, activation="tanh", use_bias=False, dtype=self.dtype_policy, name="attentional"
        )

    @property
    def step_size(self):
        return self.attentional_dim or self.query_dim

    @property
    def fed_state_sizes(self):
        return [self.step_size] if self.input_feeding else []

    @property
    def cell_input_dim(self):
        return sum(self.fed_state_sizes)

    def build(self, input_shape):
        super().build(input_shape)
        self.attentional_dense.build((input_shape[0], self.context_dim + self.query_dim))

    @property
    def own_weights(self):
        return {"attentional": (ops.convert_to_tensor(self.attentional_dense.kernel), None)}

    def step(self, inputs, states, attend, update, product=None):
        if self.input_feeding:
            *states, fed = states
            inputs = ops.concatenate([inputs, fed], axis=-1)
        states = update(inputs, states)
        query = states[self.query_index]
        context, weights = attend(query)
        joined = ops.concatenate([context, query], axis=-1)
        attentional = ops.tanh(product("attentional", joined)) if product else self.attentional_dense(joined)
        return attentional, weights, [*states, attentional] if self.input_feeding else states
