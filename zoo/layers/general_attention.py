"""Luong's attention with the general (bilinear) score."""

import keras

from zoo.layers.general_score import GeneralScore
from zoo.layers.named_attention import NamedAttention


@keras.saving.register_keras_serializable(package="attention_zoo")
class GeneralAttention(NamedAttention):
    """General (bilinear) attention: `softmax(query W keyᵀ) · value`.

    Args:
        kernel_initializer: Initializer of W.
        **kwargs: `dropout`, `seed` and `implementation` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import GeneralAttention
        >>> query, value = np.ones((2, 3, 5), "float32"), np.ones((2, 7, 11), "float32")
        >>> GeneralAttention()(query, value).shape
        TensorShape([2, 3, 11])

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1
        ("general"), https://arxiv.org/abs/1508.04025
    """

    score_class = GeneralScore

    def __init__(self, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__({"kernel_initializer": kernel_initializer}, **kwargs)
