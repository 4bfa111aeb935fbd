"""Scaled dot product as a score."""

import keras

from zoo.layers.core.overrides import PLAIN, promises
from zoo.layers.scores.dot import DotScore


@keras.saving.register_keras_serializable(package="attention_zoo")
class ScaledDotScore(DotScore):
    """Scaled dot product: `score(q, k) = q · k / √d_k`. It has no weights.

    Call arguments:
        query: [..., T, D].
        key: [..., S, D].

    Returns:
        Scores [..., T, S].

    Raises:
        ValueError: If queries and keys have different sizes.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import ScaledDotScore
        >>> ScaledDotScore()(np.ones((1, 2, 4), "float32"), np.ones((1, 3, 4), "float32")).shape
        TensorShape([1, 2, 3])

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", equation 1, https://arxiv.org/abs/1706.03762
    """

    @promises(PLAIN)
    def project_query(self, query):
        # Scaling before the product keeps float16 scores in range.
        return query * query.shape[-1] ** -0.5
