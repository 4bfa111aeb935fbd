"""Sparse normalisations, which give weight to few keys: sparsemax and α-entmax."""

import keras
from keras import ops

from zoo.layers.core.softmax import LOWEST_SCORE
from zoo.layers.normalizations.base import Normalization

_BISECTIONS = 12
# From a threshold with an error below 2^−12, two Newton steps reach the precision of float32, and a third one the exact
# gradient. Gradients flow through these steps alone.
_NEWTON_STEPS = 3
_LOWEST = -2.0  # scores this far below the largest one have no weight


class _SparseNormalization(Normalization):
    """Base class: weights `p(z − τ)`, where z are the scores minus the largest one and τ is such that they sum to 1."""

    scale: float

    def weights_of(self, scores, mask):
        if mask is not None:
            scores = ops.where(mask, scores, ops.cast(LOWEST_SCORE, scores.dtype))
        if not isinstance(scores.shape[-1], int):  # there may be no key, and empty scores have no maximum
            lowest = ops.full_like(ops.sum(scores, axis=-1, keepdims=True), LOWEST_SCORE)
            return self._weights(ops.concatenate([scores, lowest], axis=-1))[..., :-1]
        return scores if 0 in scores.shape else self._weights(scores)

    def _weights(self, scores):
        largest = ops.stop_gradient(ops.max(scores, axis=-1, keepdims=True))
        return self.sparse(ops.maximum((scores - largest) * self.scale, ops.cast(_LOWEST, scores.dtype)))


@keras.saving.register_keras_serializable(package="attention_zoo")
class SparsemaxNormalization(_SparseNormalization):
    """Sparsemax, the projection of the scores onto the simplex: `wᵢ = max(sᵢ − τ, 0)`, `Σ wᵢ = 1`.

    Args:
        **kwargs: Options of `keras.layers.Layer`.

    Call arguments and results: see `Normalization`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import SparsemaxNormalization
        >>> print(np.round(SparsemaxNormalization()(np.array([[0.0, 0.6, 1.0]])), 2))
        [[0.  0.3 0.7]]

    Reference:
        Martins and Astudillo 2016, "From Softmax to Sparsemax: A Sparse Model of Attention and Multi-Label
        Classification", section 2, algorithm 1, https://arxiv.org/abs/1602.02068
    """

    label = "sparsemax"
    scale = 1.0

    def sparse(self, scores):
        order, numbers = _sorted(ops.stop_gradient(scores))
        thresholds = (ops.cumsum(order, axis=-1) - 1) / numbers
        support = _support(ops.stop_gradient(scores), order, thresholds)
        threshold = (ops.sum(scores * support, axis=-1, keepdims=True) - 1) / ops.sum(support, axis=-1, keepdims=True)
        return ops.relu(scores - threshold)


@keras.saving.register_keras_serializable(package="attention_zoo")
class EntmaxNormalization(_SparseNormalization):
    """α-entmax: `wᵢ = max((α − 1) sᵢ − τ, 0)^(1 / (α − 1))`, `Σ wᵢ = 1`: between softmax (α = 1) and sparsemax (α = 2).

    The threshold τ is exact for α = 1.5, from sorted scores; for other α it is computed by bisection.

    Args:
        alpha: α, a number with 1 < α < 2. The larger it is, the more keys have a weight of zero.
        **kwargs: Options of `keras.layers.Layer`.

    Call arguments and results: see `Normalization`.

    Raises:
        ValueError: For another α.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import EntmaxNormalization
        >>> print(np.round(EntmaxNormalization()(np.array([[0.0, 2.0, 3.0]])), 3))
        [[0.    0.169 0.831]]

    Reference:
        Peters et al. 2019, "Sparse Sequence-to-Sequence Models", section 3, equation 10 and algorithms 1 and 2,
        https://arxiv.org/abs/1905.05702
    """

    label = "entmax"
    saved_options = ("alpha",)

    def __init__(self, alpha=1.5, **kwargs):
        super().__init__(**kwargs)
        if not 1 < alpha < 2:
            raise ValueError(
                "`alpha` must be between 1 and 2; use SoftmaxNormalization for 1 and SparsemaxNormalization for 2. "
                f"Received: alpha={alpha!r}."
            )
        self.alpha = float(alpha)

    @property
    def scale(self):
        """The factor of the scores, α − 1."""
        return self.alpha - 1

    def sparse(self, scores):
        return _entmax_15(scores) if self.alpha == 1.5 else _entmax_by_bisection(scores, 1 / (self.alpha - 1))


def _entmax_15(scores):
    order, numbers = _sorted(ops.stop_gradient(scores))
    mean, mean_of_squares = ops.cumsum(order, axis=-1) / numbers, ops.cumsum(ops.square(order), axis=-1) / numbers
    spread = numbers * (mean_of_squares - ops.square(mean))
    thresholds = mean - ops.sqrt(ops.relu((1 - spread) / numbers))
    support = _support(ops.stop_gradient(scores), order, thresholds)
    count = ops.sum(support, axis=-1, keepdims=True)
    mean = ops.sum(scores * support, axis=-1, keepdims=True) / count
    spread = ops.sum(ops.square(scores - mean) * support, axis=-1, keepdims=True)
    rest = ops.maximum((1 - spread) / count, ops.cast(1e-30, scores.dtype))
    return ops.square(ops.relu(scores - (mean - ops.sqrt(rest))))


def _sorted(scores):
    """Returns the scores of each row in descending order, and the numbers 1 … S."""
    return -ops.sort(-scores, axis=-1), ops.cast(ops.arange(1, ops.shape(scores)[-1] + 1), scores.dtype)


def _support(scores, order, thresholds):
    """Returns 1 where weights are positive and 0 elsewhere.

    `thresholds` are those of supports that consist of the first 1 … S scores in descending order.
    """
    size = ops.sum(ops.cast(order > thresholds, "int32"), axis=-1, keepdims=True)
    threshold = ops.take_along_axis(thresholds, ops.maximum(size - 1, 0), axis=-1)
    return ops.cast(scores > threshold, scores.dtype)


def _entmax_by_bisection(scores, power):
    constant = ops.stop_gradient(scores)
    low, step = ops.full_like(constant[..., :1], -1.0), 1.0
    for _ in range(_BISECTIONS):
        step /= 2
        total = ops.sum(_power(constant - (low + step), power), axis=-1, keepdims=True)
        low = ops.where(total >= 1, low + step, low)
    for _ in range(_NEWTON_STEPS):
        rest = scores - low
        total = ops.sum(_power(rest, power), axis=-1, keepdims=True)
        low = low + (total - 1) / (power * ops.sum(_power(rest, power - 1), axis=-1, keepdims=True))
    return _power(scores - low, power)


def _power(rest, power):
    """Returns `max(rest, 0)^power`, with a derivative of 0 where the result is 0."""
    positive = rest > 0
    powers = ops.power(ops.where(positive, rest, ops.ones_like(rest)), power)
    return ops.where(positive, powers, ops.zeros_like(rest))
