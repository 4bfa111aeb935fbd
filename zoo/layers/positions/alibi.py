"""Attention with linear biases."""

import keras
from keras import ops

from zoo.layers.core.overrides import PAIRWISE, promises
from zoo.layers.positions.base import Positions, distances


def head_slopes(num_heads):
    """Returns the slope of each head.

    For N a power of two they are `2^(−8n/N)`, n = 1 … N. Otherwise, as in the code of the paper's authors, the slopes
    of the largest power of two below N come first, and then every other one of those of twice as many heads.
    """

    def slopes(power, step):
        return [2 ** (-8 * n / power) for n in range(1, power + 1, step)]

    power = 2 ** (num_heads.bit_length() - 1)
    return slopes(power, 1) + slopes(2 * power, 2)[: num_heads - power]


@keras.saving.register_keras_serializable(package="attention_zoo")
class ALiBiPositions(Positions):
    """Attention with linear biases: `−m · |i − j|` is added to the score of query i and key j, m a slope for each head.

    With a causal mask this is the paper's `−m · (i − j)`; without one, keys on both sides are penalised alike. There
    are no weights.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import ALiBiPositions
        >>> positions = ALiBiPositions()
        >>> positions.build_for_attention(num_heads=8, key_dim=4, value_dim=4, query_dim=32, memory_dim=32)
        >>> print(np.array(positions.bias([1, 2], [0, 1, 2]))[0])
        [[-0.5 -0.  -0.5]
         [-1.  -0.5 -0. ]]

    Reference:
        Press et al. 2022, "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
        section 3, https://arxiv.org/abs/2108.12409
    """

    needs = ("num_heads",)

    def create_weights(self, num_heads):
        self.slopes = head_slopes(num_heads)

    @promises(PAIRWISE)
    def bias(self, query_positions, key_positions):
        steps = ops.cast(ops.abs(distances(query_positions, key_positions)), "float32")  # [T, S]
        return -steps * ops.convert_to_tensor(list(self.slopes), "float32")[:, None, None]
