"""Concat score with a single unit."""

import keras
from keras import ops

from zoo.layers.core.projections import apply_positionwise, projection
from zoo.layers.scores.base import Score


@keras.saving.register_keras_serializable(package="attention_zoo")
class TanhConcatScore(Score):
    """Concat score without v: `score(s, h) = tanh(W [s; h] + b)`, where W has one row and b is a number.

    W is stored as two rows, one for each side (`W [s; h] = W₁ s + W₂ h`), so that a pair costs one addition and one
    tanh. Scores lie between −1 and 1.

    Args:
        use_bias: Whether there is the number b.
        kernel_initializer: Initializer of the two parts of W.

    Call arguments:
        query: [..., T, Dq].
        key: [..., S, Dk].

    Returns:
        Scores [..., T, S].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import TanhConcatScore
        >>> score = TanhConcatScore()
        >>> score(np.ones((1, 2, 7), "float32"), np.ones((1, 3, 4), "float32")).shape, score.count_params()
        (TensorShape([1, 2, 3]), 12)

    Reference:
        Tang et al. 2016, "Aspect Level Sentiment Classification with Deep Memory Network", content attention,
        https://arxiv.org/abs/1605.08900
    """

    saved_options = ("use_bias", "kernel_initializer")

    def __init__(self, kernel_initializer="glorot_uniform", use_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.query_dense = projection(self, 1, "query", use_bias, self.kernel_initializer)
        self.key_dense = projection(self, 1, "key", False, self.kernel_initializer)

    def build(self, query_shape, key_shape):
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape)

    def project_query(self, query):
        return apply_positionwise(self.query_dense, query)

    def project_key(self, key):
        return apply_positionwise(self.key_dense, key)

    def compare(self, query, key):
        return ops.tanh(query + ops.swapaxes(key, -1, -2))  # [..., T, 1] + [..., 1, S]
