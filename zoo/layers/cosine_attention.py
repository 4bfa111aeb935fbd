"""Attention by cosine."""

import keras

from zoo.layers.cosine_score import CosineScore
from zoo.layers.named_attention import NamedAttention


@keras.saving.register_keras_serializable(package="attention_zoo")
class CosineAttention(NamedAttention):
    """Cosine attention: `softmax(cos(query, key) / τ) · value`.

    With τ = 1 no key can outweigh another by more than e² times; sharp attention needs a smaller or a learned τ.

    Args:
        temperature: τ, or where it begins if it is learned; a positive number.
        learn_temperature: Whether τ is learned.
        **kwargs: `dropout`, `seed` and `implementation` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`; query and key have the same last axis.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import CosineAttention
        >>> query, value = np.array([[[0.0, 9.0]]], "float32"), np.array([[[5.0, 0.0], [0.0, 7.0]]], "float32")
        >>> print(np.round(CosineAttention(temperature=0.05)(query, value)[0], 3))
        [[0. 7.]]

    Reference:
        Graves et al. 2014, "Neural Turing Machines", section 3.3.1, https://arxiv.org/abs/1410.5401;
        with learned temperature: Liu et al. 2022, "Swin Transformer V2", equation 2, https://arxiv.org/abs/2111.09883
    """

    score_class = CosineScore

    def __init__(self, temperature=1.0, learn_temperature=False, **kwargs):
        super().__init__({"temperature": temperature, "learn_temperature": learn_temperature}, **kwargs)
