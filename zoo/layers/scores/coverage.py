"""The additive score that knows how much attention each key has had."""

import keras
from keras import ops

from zoo.layers.core.checks import check_size
from zoo.layers.core.projections import apply_positionwise
from zoo.layers.scores.additive import AdditiveScore


@keras.saving.register_keras_serializable(package="attention_zoo")
class CoverageScore(AdditiveScore):
    """Additive score with coverage: `score(s_i, h_j) = v · tanh(W₁ s_i + W₂ h_j + w C_ij + b)`.

    `C_ij = Σ_{k<i} α_kj` is the attention that key j has had in the steps before; so a decoder can leave alone what it
    has translated, and come to what it has not. With a fertility, `C_ij = Σ_{k<i} α_kj / Φ_j`, where
    `Φ_j = N · σ(u · h_j)` is how much attention key j is to have.

    The recurrent cells keep the coverage among their states, and tell the score by `cover`. Anywhere else, where there
    are no steps, it is zero and this is the additive score.

    Args:
        units: Size of the hidden layer, a positive integer. Default: the last axis of the query.
        use_bias: Whether the hidden layer has the bias `b`.
        kernel_initializer: Initializer of W₁, W₂, w, u and v.
        max_fertility: N, a positive integer; `None` for no fertility.

    Call arguments:
        query: [..., T, Dq].
        key: [..., S, Dk].

    Returns:
        Scores [..., T, S].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import CoverageScore
        >>> score, key = CoverageScore(5), np.ones((1, 3, 4), "float32")
        >>> score(np.ones((1, 2, 7), "float32"), key).shape
        TensorShape([1, 2, 3])
        >>> score.cover(score.project_key(key), np.array([[0.0, 0.5, 1.5]], "float32")).shape
        TensorShape([1, 3, 5])

    Reference:
        Tu et al. 2016, "Modeling Coverage for Neural Machine Translation", section 3.1.1 (linguistic coverage; with
        fertility equations 8 and 9), https://arxiv.org/abs/1601.04811;
        See et al. 2017, "Get To The Point", section 2.3, equation 11 (without fertility),
        https://arxiv.org/abs/1704.04368
    """

    saved_options: tuple[str, ...] = ("max_fertility",)

    def __init__(self, units=None, use_bias=True, kernel_initializer="glorot_uniform", max_fertility=None, **kwargs):
        super().__init__(units, use_bias, kernel_initializer, **kwargs)
        self.max_fertility = check_size("max_fertility", max_fertility, optional=True)

    def build(self, query_shape, key_shape):
        super().build(query_shape, key_shape)
        self.coverage_dense = self._dense(self.hidden_size, "coverage")
        self.coverage_dense.build((*key_shape[:-1], 1))
        if self.max_fertility is not None:
            self.fertility_dense = self._dense(1, "fertility")
            self.fertility_dense.build(key_shape)

    def project_key(self, key):
        """Returns W₂ h_j and with fertilities, after it, 1 / Φ_j."""
        projected = super().project_key(key)
        if self.max_fertility is not None:
            fertility = self.max_fertility * ops.sigmoid(apply_positionwise(self.fertility_dense, key))
            projected = ops.concatenate([projected, 1 / fertility], axis=-1)
        # Nothing is covered yet; so the weights of coverage have gradients, if zeros, also where there are no steps.
        return self.cover(projected, ops.zeros_like(projected[..., 0]))

    def cover(self, key, attended):
        """Returns projected keys as they are compared after some steps.

        Args:
            key: [..., S, K], from `project_key`.
            attended: The attention that each has had, Σ_{k<i} α_kj, [..., S].
        """
        attended = ops.cast(attended, key.dtype)[..., None]
        if self.max_fertility is None:
            return key + apply_positionwise(self.coverage_dense, attended)
        hidden, shares = key[..., :-1], key[..., -1:]
        return ops.concatenate([hidden + apply_positionwise(self.coverage_dense, attended * shares), shares], axis=-1)

    def compare(self, query, key):
        return super().compare(query, key if self.max_fertility is None else key[..., :-1])
