"""Scores by products of queries and keys: dot, scaled dot, general (bilinear), cosine."""

import math

import keras
from keras import backend, ops

from zoo.layers.core.facts import PLAIN, computes, promises
from zoo.layers.core.kernels import products
from zoo.layers.core.projections import apply_positionwise, projection
from zoo.layers.scores.base import Score

# Squared norm below which a vector counts as zero; the gradients of a vector of norm 1e-4 still fit float16.
_SMALLEST_SQUARED_NORM = 1e-8


@keras.saving.register_keras_serializable(package="attention_zoo")
class DotScore(Score):
    """Dot product: `score(q, k) = q · k`. It has no weights.

    Base class of the scores that are dot products of projected queries and keys.

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
                f"`query` and `key` must have the same last axis for {type(self).__name__}; `GeneralScore` accepts "
                "different ones. Attention layers are called as (query, value, key). "
                f"Received: query_shape={tuple(query_shape)}, key_shape={tuple(key_shape)}."
            )

    @promises(PLAIN)
    def compare(self, query, key):
        return products(query, key)


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


@keras.saving.register_keras_serializable(package="attention_zoo")
class GeneralScore(DotScore):
    """General (bilinear) score: `score(q, k) = qᵀ W k`, for queries and keys of any sizes.

    The keys are projected, not the queries, so that a decoder projects each source only once.

    Args:
        kernel_initializer: Initializer of W, which is stored transposed, [Dk, Dq].

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

    @computes("W key")
    def project_key(self, key):
        return apply_positionwise(self.key_dense, key)


@keras.saving.register_keras_serializable(package="attention_zoo")
class CosineScore(DotScore):
    """Cosine of the angle: `score(q, k) = (q · k) / (τ |q| |k|)`.

    The cosines of a vector whose norm is below 10⁻⁴ are 0, and so are its gradients.

    Args:
        temperature: τ, or its initial value if it is learned; a positive number. Scores lie between −1/τ and 1/τ.
        learn_temperature: Whether τ is learned, a single number for all heads. Its logarithm is the weight, so that τ
            stays positive.

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
            initializer = keras.initializers.Constant(math.log(self.temperature))
            self.log_temperature = self.add_weight(shape=(), initializer=initializer, name="log_temperature")

    @computes("query / (τ |query|)")
    def project_query(self, query):
        if not self.learn_temperature:
            return _scaled_to_norm(query, 1.0 / self.temperature)
        return _scaled_to_norm(query, ops.exp(-ops.cast(self.log_temperature, _wide_dtype(query))))

    @computes("key / |key|")
    def project_key(self, key):
        return _scaled_to_norm(key)


def _wide_dtype(vectors):
    return backend.result_type(backend.standardize_dtype(vectors.dtype), "float32")


def _scaled_to_norm(vectors, norm=1.0):
    """Returns `vectors` [..., D] scaled to a norm, computed in float32 because squares overflow float16."""
    wide = ops.cast(vectors, _wide_dtype(vectors))
    squares = ops.sum(ops.square(wide), axis=-1, keepdims=True)
    is_nonzero = squares > _SMALLEST_SQUARED_NORM
    # The inner `where` makes the gradient of the branch that is not taken finite.
    inverse = ops.rsqrt(ops.where(is_nonzero, squares, ops.ones_like(squares)))
    factor = ops.where(is_nonzero, inverse, ops.zeros_like(squares))
    return ops.cast(wide * factor * norm, vectors.dtype)
