"""Luong's concat score."""

import keras

from zoo.layers.scores.additive import AdditiveScore


@keras.saving.register_keras_serializable(package="attention_zoo")
class ConcatScore(AdditiveScore):
    """Concat score: `score(s, h) = v · tanh(W [s; h])`, without a bias, for queries and keys of any sizes.

    W is kept as two matrices, one for each side (`W [s; h] = W₁ s + W₂ h`), so that each side is projected once and
    no pair is ever concatenated: the additive score without its bias.

    Args:
        units: Size of the hidden layer, a positive integer. Default: the last axis of the query.
        kernel_initializer: Initializer of the two parts of W, and of v.

    Call arguments:
        query: [..., T, Dq].
        key: [..., S, Dk].

    Returns:
        Scores [..., T, S].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import ConcatScore
        >>> score = ConcatScore(5)
        >>> score(np.ones((1, 2, 7), "float32"), np.ones((1, 3, 4), "float32")).shape, score.count_params()
        (TensorShape([1, 2, 3]), 60)

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1
        ("concat"), https://arxiv.org/abs/1508.04025
    """

    def __init__(self, units=None, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(units, use_bias=False, kernel_initializer=kernel_initializer, **kwargs)

    def get_config(self):
        config = super().get_config()
        del config["use_bias"]
        return config
