"""Additive scores: the tanh of the sum of a projected query and a projected key."""

import keras
from keras import ops

from zoo.layers.core.checks import check_size
from zoo.layers.core.facts import computes
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

    @computes("W_1 query + b")
    def project_query(self, query):
        return apply_positionwise(self.query_dense, query)

    @computes("W_2 key")
    def project_key(self, key):
        return apply_positionwise(self.key_dense, key)

    def compare(self, query, key):
        hidden = ops.tanh(ops.expand_dims(query, -2) + ops.expand_dims(key, -3))  # [..., T, S, units]
        rows = multiply(self.score_dense, ops.reshape(hidden, (-1, hidden.shape[-1])))
        return ops.reshape(rows, sizes_of(hidden, *range(len(hidden.shape) - 1)))


@keras.saving.register_keras_serializable(package="attention_zoo")
class ConcatScore(AdditiveScore):
    """Concat score: `score(s, h) = v · tanh(W [s; h])`, without a bias, for queries and keys of any sizes.

    W is stored as two matrices (`W [s; h] = W₁ s + W₂ h`), so that queries and keys are projected once and no pair is
    concatenated. This is the additive score without its bias.

    Args:
        units: Size of the hidden layer, a positive integer. Default: the last axis of the query.
        kernel_initializer: Initializer of the two parts of W, and of v.

    Call arguments:
        query: [..., T, Dq].
        key: [..., S, Dk].

    Returns:
        Scores [..., T, S].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import ConcatScore
        >>> score = ConcatScore(5)
        >>> score(np.ones((1, 2, 7), "float32"), np.ones((1, 3, 4), "float32")).shape, score.count_params()
        (TensorShape([1, 2, 3]), 60)

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1
        ("concat"), https://arxiv.org/abs/1508.04025
    """

    def __init__(self, units=None, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(units, use_bias=False, kernel_initializer=kernel_initializer, **kwargs)

    def get_config(self):
        config = super().get_config()
        del config["use_bias"]
        return config


@keras.saving.register_keras_serializable(package="attention_zoo")
class TanhConcatScore(Score):
    """Concat score without v: `score(s, h) = tanh(W [s; h] + b)`, where W has one row and b is a number.

    W is stored as two rows (`W [s; h] = W₁ s + W₂ h`), so that a pair costs one addition and one tanh. Scores lie
    between −1 and 1.

    Args:
        use_bias: Whether the score has the bias b.
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

    @computes("W_1 query + b")
    def project_query(self, query):
        return apply_positionwise(self.query_dense, query)

    @computes("W_2 key")
    def project_key(self, key):
        return apply_positionwise(self.key_dense, key)

    def compare(self, query, key):
        return ops.tanh(query + ops.swapaxes(key, -1, -2))  # [..., T, 1] + [..., 1, S]


@keras.saving.register_keras_serializable(package="attention_zoo")
class NormalizedAdditiveScore(AdditiveScore):
    """Additive score with weight normalisation of v: `score(s, h) = g · v / ‖v‖ · tanh(W₁ s + W₂ h + b)`.

    The gain g is learned and starts at `1 / √units`. No score exceeds `g · √units`. Monotonic attention requires such a
    bound: its sigmoid, unlike a softmax, changes when a constant is added to all scores.

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
        >>> from zoo.layers import NormalizedAdditiveScore
        >>> NormalizedAdditiveScore(5)(np.ones((1, 2, 7), "float32"), np.ones((1, 3, 4), "float32")).shape
        TensorShape([1, 2, 3])

    Reference:
        Raffel et al. 2017, "Online and Linear-Time Attention by Enforcing Monotonic Alignments", section 2.4, equation
        16, https://arxiv.org/abs/1704.00784; weight normalisation: Salimans and Kingma 2016,
        https://arxiv.org/abs/1602.07868
    """

    def build(self, query_shape, key_shape):
        super().build(query_shape, key_shape)
        initializer = keras.initializers.Constant(self.hidden_size**-0.5)
        self.gain = self.add_weight(name="gain", shape=(), initializer=initializer)

    def compare(self, query, key):
        return super().compare(query, key) * ops.cast(self.gain / self._norm(), self.compute_dtype)

    def _norm(self):
        """Returns ‖v‖."""
        dense = self.score_dense
        rows = dense.kernel if dense.quantization_mode is None else dense(ops.eye(self.hidden_size))
        return ops.sqrt(ops.sum(ops.square(ops.cast(rows, self.gain.dtype))) + 1e-12)


@keras.saving.register_keras_serializable(package="attention_zoo")
class CoverageScore(AdditiveScore):
    """Additive score with coverage: `score(s_i, h_j) = v · tanh(W₁ s_i + W₂ h_j + w C_ij + b)`.

    `C_ij = Σ_{k<i} α_kj` is the attention that key j has received in earlier steps, so that a decoder can avoid
    tokens that it has translated and attend to the others. With a fertility, `C_ij = Σ_{k<i} α_kj / Φ_j`, where
    `Φ_j = N · σ(u · h_j)` is the total attention that key j should receive.

    Recurrent cells store the coverage among their states and pass it to the score by `cover`. In other layers, which
    have no steps, the coverage is zero and this is the additive score.

    Args:
        units: Size of the hidden layer, a positive integer. Default: the last axis of the query.
        use_bias: Whether the hidden layer has the bias `b`.
        kernel_initializer: Initializer of W₁, W₂, w, u and v.
        max_fertility: N, a positive integer, or `None` for no fertility.

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
        """Returns W₂ h_j, with a fertility followed by 1 / Φ_j."""
        projected = super().project_key(key)
        if self.max_fertility is not None:
            fertility = self.max_fertility * ops.sigmoid(apply_positionwise(self.fertility_dense, key))
            projected = ops.concatenate([projected, 1 / fertility], axis=-1)
        # The coverage is zero, so that in layers without steps, too, its weights have gradients (which are zero).
        return self.cover(projected, ops.zeros_like(projected[..., 0]))

    def cover(self, key, attended):
        """Returns projected keys with their coverage.

        Args:
            key: Projected keys [..., S, K], from `project_key`.
            attended: The attention that each key has received, Σ_{k<i} α_kj, [..., S].
        """
        attended = ops.cast(attended, key.dtype)[..., None]
        if self.max_fertility is None:
            return key + apply_positionwise(self.coverage_dense, attended)
        hidden, inverse = key[..., :-1], key[..., -1:]  # W₂ h_j and 1 / Φ_j
        return ops.concatenate([hidden + apply_positionwise(self.coverage_dense, attended * inverse), inverse], axis=-1)

    def compare(self, query, key):
        return super().compare(query, key if self.max_fertility is None else key[..., :-1])
