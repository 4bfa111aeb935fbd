"""Bilinear form as a score."""

import keras

from zoo.layers.core.projections import apply_positionwise, projection
from zoo.layers.scores.dot import DotScore


@keras.saving.register_keras_serializable(package="attention_zoo")
class GeneralScore(DotScore):
    """General (bilinear) score: `score(q, k) = qᵀ W k`, for queries and keys of any sizes.

    The keys are projected, `W k`, and then compared with the queries, so that a decoder projects each source once.

    Args:
        kernel_initializer: Initializer of W, [Dk, Dq].

    Call arguments:
        query: [..., T, Dq].
        key: [..., S, Dk].

    Returns:
        Scores [..., T, S].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import GeneralScore
        >>> GeneralScore()(np.ones((1, 2, 7), "float32"), np.ones((1, 3, 4), "float32")).shape
        TensorShape([1, 2, 3])

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1
        ("general"), https://arxiv.org/abs/1508.04025
    """

    saved_options = ("kernel_initializer",)
    needs = ("query_dim", "key_dim")
    needs_equal_sizes = False

    def __init__(self, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, query_shape, key_shape):
        self.key_dense = projection(self, query_shape[-1], "key", kernel_initializer=self.kernel_initializer)
        self.key_dense.build(key_shape)

    def project_key(self, key):
        return apply_positionwise(self.key_dense, key)
