"""Bahdanau's additive attention."""

import keras

from zoo.layers.attention import Attention
from zoo.layers.scores import AdditiveScore


@keras.saving.register_keras_serializable(package="attention_zoo")
class AdditiveAttention(Attention):
    """Additive attention: `softmax(v · tanh(W₁ query + W₂ key + b)) · value`.

    Args:
        units: Size of the hidden layer of the score, a positive integer.
        use_bias: Whether the hidden layer has the bias `b`.
        kernel_initializer: Initializer of W₁, W₂ and v.
        dropout: Rate of dropout on the attention weights.
        seed: Seed of the dropout.

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

    def __init__(
        self, units, use_bias=True, kernel_initializer="glorot_uniform", dropout=0.0, seed=None, dtype=None, **kwargs
    ):
        score = AdditiveScore(units, use_bias, kernel_initializer, dtype=dtype, name="score")
        super().__init__(score, dropout=dropout, seed=seed, dtype=dtype, **kwargs)
        self.units = units
        self.use_bias = use_bias
        self.kernel_initializer = score.kernel_initializer

    def get_config(self):
        config = super().get_config()
        del config["score"]
        return {
            **config,
            "units": self.units,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**config)
