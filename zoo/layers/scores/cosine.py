"""Cosine as a score."""

import math

import keras
from keras import backend, ops

from zoo.layers.scores.dot import DotScore

# Squared length below which a vector has no direction; the gradients of one of length 1e-4 still fit float16.
_NO_DIRECTION = 1e-8


@keras.saving.register_keras_serializable(package="attention_zoo")
class CosineScore(DotScore):
    """Cosine of the angle: `score(q, k) = (q · k) / (τ |q| |k|)`.

    A vector shorter than 10⁻⁴ has no direction: all its cosines are 0, and so are its gradients.

    Args:
        temperature: τ, or its initial value if it is learned; a positive number. Scores lie between −1/τ and 1/τ.
        learn_temperature: Whether τ is learned, through its logarithm, so that it stays positive. It is one number
            for all heads.

    Call arguments:
        query: [..., T, D].
        key: [..., S, D].

    Returns:
        Scores [..., T, S].

    Raises:
        ValueError: If queries and keys have different sizes.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import CosineScore
        >>> query, key = np.array([[3.0, 4.0]], "float32"), np.array([[0.0, 9.0], [0.0, 0.0]], "float32")
        >>> print(np.array(CosineScore(temperature=0.5)(query, key)))
        [[1.6 0. ]]

    Reference:
        Graves et al. 2014, "Neural Turing Machines", section 3.3.1, equation 6, https://arxiv.org/abs/1410.5401;
        with learned temperature: Liu et al. 2022, "Swin Transformer V2", equation 2, https://arxiv.org/abs/2111.09883
    """

    saved_options = ("temperature", "learn_temperature")

    def __init__(self, temperature=1.0, learn_temperature=False, **kwargs):
        super().__init__(**kwargs)
        if not temperature > 0:
            raise ValueError(f"`temperature` must be positive. Received: temperature={temperature}.")
        self.temperature = temperature
        self.learn_temperature = learn_temperature

    def build(self, query_shape, key_shape):
        super().build(query_shape, key_shape)
        if self.learn_temperature:
            start = keras.initializers.Constant(math.log(self.temperature))
            self.log_temperature = self.add_weight(shape=(), initializer=start, name="log_temperature")

    def project_query(self, query):
        if not self.learn_temperature:
            return _directions(query, 1.0 / self.temperature)
        return _directions(query, ops.exp(-ops.cast(self.log_temperature, _wide(query))))

    def project_key(self, key):
        return _directions(key)


def _wide(vectors):
    return backend.result_type(backend.standardize_dtype(vectors.dtype), "float32")


def _directions(vectors, length=1.0):
    """Returns `vectors` [..., D] scaled to the given length, computed in float32: squares overflow float16."""
    wide = ops.cast(vectors, _wide(vectors))
    squares = ops.sum(ops.square(wide), axis=-1, keepdims=True)
    clear = squares > _NO_DIRECTION
    # Guarded twice, since the gradient of the branch that is not taken must be finite, too.
    factor = ops.where(clear, ops.rsqrt(ops.where(clear, squares, ops.ones_like(squares))), ops.zeros_like(squares))
    return ops.cast(wide * factor * length, vectors.dtype)
