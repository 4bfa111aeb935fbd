"""Luong's attention with the concat score."""

import keras

from zoo.layers.concat_score import ConcatScore
from zoo.layers.named_attention import NamedAttention


@keras.saving.register_keras_serializable(package="attention_zoo")
class ConcatAttention(NamedAttention):
    """Concat attention: `softmax(v · tanh(W [query; key])) · value`.

    Args:
        units: Size of the hidden layer of the score, a positive integer. Default: the last axis of the query.
        kernel_initializer: Initializer of W and v.
        **kwargs: `dropout`, `seed` and `implementation` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import ConcatAttention
        >>> query, value = np.ones((2, 3, 5), "float32"), np.ones((2, 7, 11), "float32")
        >>> ConcatAttention(units=13)(query, value).shape
        TensorShape([2, 3, 11])

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1
        ("concat"), https://arxiv.org/abs/1508.04025
    """

    score_class = ConcatScore

    def __init__(self, units=None, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__({"units": units, "kernel_initializer": kernel_initializer}, **kwargs)
