"""Dot product as a score."""

import keras

from zoo.layers.core.kernels import products
from zoo.layers.core.overrides import PLAIN, promises
from zoo.layers.scores.base import Score


@keras.saving.register_keras_serializable(package="attention_zoo")
class DotScore(Score):
    """Dot product: `score(q, k) = q · k`. It has no weights.

    Scores that are dot products of projected queries and keys derive from this one.

    Call arguments:
        query: [..., T, D].
        key: [..., S, D].

    Returns:
        Scores [..., T, S].

    Raises:
        ValueError: If queries and keys have different sizes.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import DotScore
        >>> print(np.array(DotScore()(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 0.0]]))))
        [[11.  5.]]

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1 ("dot"),
        https://arxiv.org/abs/1508.04025
    """

    needs: tuple[str, ...] = ()
    needs_equal_sizes = True

    def build(self, query_shape, key_shape):
        if query_shape[-1] != key_shape[-1]:
            raise ValueError(
                f"`query` and `key` must have the same last axis for {type(self).__name__}; `GeneralScore` takes "
                "different ones. Attention layers are called as (query, value, key). "
                f"Received: query_shape={tuple(query_shape)}, key_shape={tuple(key_shape)}."
            )

    @promises(PLAIN)
    def compare(self, query, key):
        return products(query, key)
