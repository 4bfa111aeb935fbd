"""Talking-heads attention."""

import keras
from keras import ops

from zoo.layers.attention.multi_head import MultiHeadAttention
from zoo.layers.core.facts import computes


@keras.saving.register_keras_serializable(package="attention_zoo")
class TalkingHeadsAttention(MultiHeadAttention):
    """Multi-head attention whose heads mix their scores before the softmax, and their weights after it.

    `Wⱼ = softmax(Σᵢ P_l[i, j] Jᵢ)`, `headⱼ = (Σᵢ P_w[i, j] Wᵢ) Vⱼ` with the scores `Jᵢ = score(Qᵢ, Kᵢ)`. P_l and P_w
    [N, N] are learned; they are initialised as identities, so that a new layer is multi-head attention. (In the paper,
    scores, softmax and values may have different numbers of heads; here all have N.)

    Scores, including biases of positions, are mixed before masks and `attention_bias` are applied. The returned weights
    are W, whose rows sum to 1; dropout is applied to W. The two mixes cost N² · T · S multiplications each and require
    all heads at once, so fused kernels and tiles are not used: long sequences are computed in chunks of queries.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for keys, and by default for queries.
        value_dim: Size of each head for values. Default: `key_dim`.
        **kwargs: Other options of `MultiHeadAttention`.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import TalkingHeadsAttention
        >>> inputs = np.ones((2, 3, 8), "float32")
        >>> TalkingHeadsAttention(num_heads=2, key_dim=4)(inputs, inputs).shape
        TensorShape([2, 3, 8])

    Reference:
        Shazeer et al. 2020, "Talking-Heads Attention", section 3, https://arxiv.org/abs/2003.02436
    """

    def __init__(self, num_heads, key_dim, value_dim=None, **kwargs):
        super().__init__(num_heads, key_dim, value_dim, **kwargs)

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        shape = (self.num_heads, self.num_heads)
        self.score_mixing = self.add_weight(name="score_mixing", shape=shape, initializer="identity")
        self.weight_mixing = self.add_weight(name="weight_mixing", shape=shape, initializer="identity")

    def compare(self, query, key, visibility):
        return _mix(self.score_mixing, super().compare(query, key, visibility))

    @computes("P_w weights · value")
    def weighted_sum(self, weights, value, visibility):
        return super().weighted_sum(_mix(self.weight_mixing, weights), value, visibility)


def _mix(matrix, heads):
    """Returns heads [B, N, T, S] mixed by the columns of a matrix [N, N]."""
    return ops.einsum("bits,ij->bjts", heads, ops.cast(matrix, heads.dtype))
