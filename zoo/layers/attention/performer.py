"""Softmax attention in linear time by random features."""

import keras
from keras import ops

from zoo.layers.attention.linear import LinearAttention
from zoo.layers.core.checks import check_size
from zoo.layers.core.facts import computes

# Bound of the exponents of the keys' features: no feature is zero, and their sums fit float32.
MAX_EXPONENT = 40.0


@keras.saving.register_keras_serializable(package="attention_zoo")
class PerformerAttention(LinearAttention):
    """Multi-head attention with weights that estimate those of the softmax, `exp(q · k / √H)`, in linear time (FAVOR+).

    `φ(x) = exp(ωᵢ · x' − |x'|² / 2) / √M`, `x' = x / H^¼`, with M random vectors `ωᵢ`: `φ(q) · φ(k)` has the mean
    `exp(q · k / √H)`, and a variance proportional to 1 / M that grows with the exponential of `|q' + k'|²`. Each group
    of H vectors is orthogonal, with the lengths of normal vectors, which lowers the variance. They are drawn when the
    layer is built, shared by all heads, never trained, and saved with the model.

    The rest is as in `LinearAttention`. A common factor of all features of a query does not change its weights: the
    features of a query are scaled so that the largest is 1. Those of a key are not, since a scale would depend on other
    keys; their exponents are clipped to ±40, far outside the range in which the estimate is good.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for queries and keys, H, a positive integer.
        num_features: M, a positive integer. The error is proportional to 1 / √M.
        value_dim: Size of each head for values. Default: `key_dim`.
        seed: Seed of the random vectors, an integer or `None`.
        **kwargs: Other options of `LinearAttention`.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S].

    Raises:
        ValueError: As for `LinearAttention`, and for a `num_features` that is not a positive integer.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import PerformerAttention
        >>> inputs = np.ones((2, 3, 8), "float32")
        >>> PerformerAttention(num_heads=2, key_dim=4, num_features=16)(inputs, inputs).shape
        TensorShape([2, 3, 8])

    Reference:
        Choromanski et al. 2021, "Rethinking Attention with Performers", section 2, equations 5-7, and section 3,
        https://arxiv.org/abs/2009.14794
    """

    saved_options = ("num_features",)

    def __init__(self, num_heads, key_dim, num_features=256, value_dim=None, seed=None, **kwargs):
        self.num_features = check_size("num_features", num_features)
        super().__init__(num_heads, key_dim, value_dim, seed=seed, **kwargs)

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        # They are in float32 under any policy, like the sums of the features.
        self.random_features = self.add_weight(
            name="random_features",
            shape=(self.key_dim, self.num_features),
            initializer=lambda shape, dtype=None: orthogonal_features(*shape, self.seed, dtype),
            trainable=False,
            autocast=False,
        )

    @property
    def num_key_features(self):
        return self.num_features

    def _exponents(self, heads):
        """Returns `ωᵢ · x'` and `x'`, [B, N, T, M] and [B, N, T, H]."""
        heads = heads * self.key_dim**-0.25
        return ops.matmul(heads, ops.cast(self.random_features, heads.dtype)), heads

    @computes("φ(query) = exp(ω · query' − max)")
    def query_features(self, query):
        exponents, _ = self._exponents(query)
        if 0 in exponents.shape:  # an empty tensor has no maximum
            return exponents
        return ops.exp(exponents - ops.stop_gradient(ops.max(exponents, axis=-1, keepdims=True)))

    @computes("φ(key) = exp(ω · key' − |key'|² / 2)")
    def key_features(self, key):
        exponents, key = self._exponents(key)
        return ops.exp(
            ops.clip(exponents - ops.sum(ops.square(key), axis=-1, keepdims=True) / 2, -MAX_EXPONENT, MAX_EXPONENT)
        )


def orthogonal_features(size, count, seed=None, dtype=None):
    """Returns random columns [size, count], each distributed as N(0, I); each group of `size` is orthogonal."""
    blocks = -(-count // size)
    normal = keras.random.normal((2, blocks, size, size), seed=seed)
    directions, triangles = ops.qr(normal[0])
    # Rotations are uniformly distributed only if the diagonals are positive.
    signs = ops.where(ops.diagonal(triangles, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
    lengths = ops.sqrt(ops.sum(ops.square(normal[1]), axis=-2))  # [blocks, size]
    vectors = directions * (signs * lengths)[:, None]
    return ops.cast(ops.reshape(ops.transpose(vectors, (1, 0, 2)), (size, blocks * size))[:, :count], dtype)
