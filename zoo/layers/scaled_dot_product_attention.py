"""Scaled dot-product attention with a single head and no projections."""

import keras

from zoo.layers.named_attention import NamedAttention
from zoo.layers.scaled_dot_score import ScaledDotScore


@keras.saving.register_keras_serializable(package="attention_zoo")
class ScaledDotProductAttention(NamedAttention):
    """Scaled dot-product attention: `softmax(query · keyᵀ / √d_k) · value`.

    Args:
        **kwargs: `dropout`, `seed` and `implementation` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`; query and key have the same last axis.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import ScaledDotProductAttention
        >>> query, value = np.ones((2, 3, 5), "float32"), np.ones((2, 7, 5), "float32")
        >>> ScaledDotProductAttention()(query, value).shape
        TensorShape([2, 3, 5])

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", equation 1, https://arxiv.org/abs/1706.03762
    """

    score_class = ScaledDotScore

    def __init__(self, **kwargs):
        super().__init__({}, **kwargs)
