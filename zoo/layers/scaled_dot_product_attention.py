"""Scaled dot-product attention with a single head and no projections."""

import keras

from zoo.layers.attention import Attention
from zoo.layers.scores import ScaledDotScore


@keras.saving.register_keras_serializable(package="attention_zoo")
class ScaledDotProductAttention(Attention):
    """Scaled dot-product attention: `softmax(query · keyᵀ / √d_k) · value`.

    Args:
        dropout: Rate of dropout on the attention weights.
        seed: Seed of the dropout.

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

    def __init__(self, dropout=0.0, seed=None, dtype=None, **kwargs):
        super().__init__(ScaledDotScore(dtype=dtype, name="score"), dropout=dropout, seed=seed, dtype=dtype, **kwargs)

    def get_config(self):
        config = super().get_config()
        del config["score"]
        return config

    @classmethod
    def from_config(cls, config):
        return cls(**config)
