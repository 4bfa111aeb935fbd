"""Bahdanau's additive score."""

import keras
from keras import ops

from zoo.layers.core.checks import check_size
from zoo.layers.core.projections import apply_positionwise, multiply, projection, sizes_of
from zoo.layers.scores.base import Score


@keras.saving.register_keras_serializable(package="attention_zoo")
class AdditiveScore(Score):
    """Additive score: `score(s, h) = v · tanh(W₁ s + W₂ h + b)`, for queries and keys of any sizes.

    Args:
        units: Size of the hidden layer, a positive integer. Default: the last axis of the query.
        use_bias: Whether the hidden layer has the bias `b`.
        kernel_initializer: Initializer of W₁, W₂ and v.

    Call arguments:
        query: [..., T, Dq].
        key: [..., S, Dk].

    Returns:
        Scores [..., T, S].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import AdditiveScore
        >>> AdditiveScore(5)(np.ones((1, 2, 7), "float32"), np.ones((1, 3, 4), "float32")).shape
        TensorShape([1, 2, 3])

    Reference:
        Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
        section A.1.2, https://arxiv.org/abs/1409.0473
    """

    saved_options: tuple[str, ...] = ("units", "use_bias", "kernel_initializer")

    def __init__(self, units=None, use_bias=True, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.units = check_size("units", units, optional=True)
        self.hidden_size = self.units or 1
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def _dense(self, units, name, use_bias=False):
        return projection(self, units, name, use_bias, self.kernel_initializer)

    def build(self, query_shape, key_shape):
        self.hidden_size = self.units or query_shape[-1]
        self.query_dense = self._dense(self.hidden_size, "query", self.use_bias)
        self.key_dense = self._dense(self.hidden_size, "key")
        self.score_dense = self._dense(1, "score")
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape)
        self.score_dense.build((*query_shape[:-1], key_shape[-2], self.hidden_size))

    def project_query(self, query):
        return apply_positionwise(self.query_dense, query)

    def project_key(self, key):
        return apply_positionwise(self.key_dense, key)

    def compare(self, query, key):
        hidden = ops.tanh(ops.expand_dims(query, -2) + ops.expand_dims(key, -3))  # [..., T, S, units]
        rows = multiply(self.score_dense, ops.reshape(hidden, (-1, hidden.shape[-1])))
        return ops.reshape(rows, sizes_of(hidden, *range(len(hidden.shape) - 1)))
