"""Luong's attention with the dot product."""

import keras

from zoo.layers.dot_score import DotScore
from zoo.layers.named_attention import NamedAttention


@keras.saving.register_keras_serializable(package="attention_zoo")
class DotAttention(NamedAttention):
    """Dot-product attention: `softmax(query · keyᵀ) · value`, without the scale of `ScaledDotProductAttention`.

    Args:
        **kwargs: `dropout`, `seed` and `implementation` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`; query and key have the same last axis.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import DotAttention
        >>> query, value = np.array([[[0.0, 50.0]]], "float32"), np.array([[[1.0, 0.0], [0.0, 1.0]]], "float32")
        >>> print(np.round(DotAttention()(query, value)[0], 3))
        [[0. 1.]]

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1 ("dot"),
        https://arxiv.org/abs/1508.04025
    """

    score_class = DotScore

    def __init__(self, **kwargs):
        super().__init__({}, **kwargs)
