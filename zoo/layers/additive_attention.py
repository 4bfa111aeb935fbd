"""Bahdanau's additive attention."""

import keras

from zoo.layers.additive_score import AdditiveScore
from zoo.layers.named_attention import NamedAttention


@keras.saving.register_keras_serializable(package="attention_zoo")
class AdditiveAttention(NamedAttention):
    """Additive attention: `softmax(v · tanh(W₁ query + W₂ key + b)) · value`.

    Args:
        units: Size of the hidden layer of the score, a positive integer. Default: the last axis of the query.
        use_bias: Whether the hidden layer has the bias `b`.
        kernel_initializer: Initializer of W₁, W₂ and v.
        **kwargs: `dropout`, `seed` and `implementation` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import AdditiveAttention
        >>> query, value = np.ones((2, 3, 5), "float32"), np.ones((2, 7, 11), "float32")
        >>> output, weights = AdditiveAttention(units=13)(query, value, return_attention_scores=True)
        >>> output.shape, weights.shape
        (TensorShape([2, 3, 11]), TensorShape([2, 3, 7]))

    Reference:
        Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
        section A.1.2, https://arxiv.org/abs/1409.0473
    """

    score_class = AdditiveScore

    def __init__(self, units=None, use_bias=True, kernel_initializer="glorot_uniform", **kwargs):
        options = {"units": units, "use_bias": use_bias, "kernel_initializer": kernel_initializer}
        super().__init__(options, **kwargs)
