"""Score functions: how well a query fits a key.

A score maps queries [..., T, Dq] and keys [..., S, Dk] to scores [..., T, S]. The parts that depend on one side
only are separate methods, so that a decoder projects its keys once and not at every step.
"""

import keras
from keras import ops

from zoo.layers.initializers import fresh


class Score(keras.layers.Layer):
    """Base of the score functions: `compare(project_query(query), project_key(key))`.

    Subclasses override `compare` and, where they have weights, `build`, `project_query` and `project_key`.

    Call arguments:
        query: [..., T, Dq].
        key: [..., S, Dk].

    Returns:
        Scores [..., T, S].
    """

    def build(self, query_shape, key_shape):
        """Creates no weights."""

    def project_query(self, query):
        """Returns the part of the score that depends on the query alone."""
        return query

    def project_key(self, key):
        """Returns the part of the score that depends on the key alone."""
        return key

    def compare(self, query, key):
        """Returns scores [..., T, S] of projected queries and keys."""
        raise NotImplementedError(f"{type(self).__name__} must override `compare`.")

    def call(self, query, key):
        return self.compare(self.project_query(query), self.project_key(key))

    def compute_output_shape(self, query_shape, key_shape):
        return (*query_shape[:-1], key_shape[-2])

    def get_config(self):
        # Spelled out, because the configuration that Keras makes by itself cannot hold a dtype policy.
        return super().get_config()


@keras.saving.register_keras_serializable(package="attention_zoo")
class ScaledDotScore(Score):
    """Scaled dot product: `score(q, k) = q · k / √d_k`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import ScaledDotScore
        >>> ScaledDotScore()(np.ones((1, 2, 4), "float32"), np.ones((1, 3, 4), "float32")).shape
        TensorShape([1, 2, 3])

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", equation 1, https://arxiv.org/abs/1706.03762
    """

    def project_query(self, query):
        # Scaling before the product keeps float16 scores in range.
        return query * query.shape[-1] ** -0.5

    def compare(self, query, key):
        return ops.matmul(query, ops.swapaxes(key, -1, -2))


@keras.saving.register_keras_serializable(package="attention_zoo")
class AdditiveScore(Score):
    """Additive score: `score(s, h) = v · tanh(W₁ s + W₂ h + b)`.

    Args:
        units: Size of the hidden layer, a positive integer.
        use_bias: Whether the hidden layer has the bias `b`.
        kernel_initializer: Initializer of W₁, W₂ and v.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import AdditiveScore
        >>> AdditiveScore(5)(np.ones((1, 2, 7), "float32"), np.ones((1, 3, 4), "float32")).shape
        TensorShape([1, 2, 3])

    Reference:
        Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
        section A.1.2, https://arxiv.org/abs/1409.0473
    """

    def __init__(self, units, use_bias=True, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        if not isinstance(units, int) or units < 1:
            raise ValueError(f"`units` must be a positive integer. Received: units={units}.")
        self.units = units
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.query_dense = self._dense(units, "query", use_bias)
        self.key_dense = self._dense(units, "key")
        self.score_dense = self._dense(1, "score")

    def _dense(self, units, name, use_bias=False):
        initializer = fresh(self.kernel_initializer)
        return keras.layers.Dense(
            units, use_bias=use_bias, kernel_initializer=initializer, dtype=self.dtype_policy, name=name
        )

    def build(self, query_shape, key_shape):
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape)
        self.score_dense.build((*query_shape[:-1], key_shape[-2], self.units))

    def project_query(self, query):
        return self.query_dense(query)

    def project_key(self, key):
        return self.key_dense(key)

    def compare(self, query, key):
        hidden = ops.tanh(ops.expand_dims(query, -2) + ops.expand_dims(key, -3))  # [..., T, S, units]
        return ops.squeeze(self.score_dense(hidden), -1)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
