"""Single-head attention with any score function, and a class for each named score."""

import keras
from keras import ops

from zoo.layers.attention.base import NO_VALUE, BaseAttention, check_built
from zoo.layers.core.checks import check_size
from zoo.layers.core.dropout import drop_weights
from zoo.layers.core.facts import PAIRWISE, PLAIN, UNPLACED, computes, promises
from zoo.layers.core.projections import apply_positionwise, projection
from zoo.layers.core.softmax import masked_softmax
from zoo.layers.scores import get_score
from zoo.layers.scores.additive import AdditiveScore, ConcatScore
from zoo.layers.scores.base import Score
from zoo.layers.scores.products import CosineScore, DotScore, GeneralScore, ScaledDotScore


@keras.saving.register_keras_serializable(package="attention_zoo")
class Attention(BaseAttention):
    """Single-head attention: `softmax(score(query, key)) · value`, without projections other than the score's.

    Args:
        score: A `Score`, its name, or a callable or Keras layer f(query, key) → scores, as for `get_score`.
        **kwargs: `dropout`, `seed`, `implementation`, `visibility` and `normalization` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`; the size of the output is that of `value`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import Attention, ScaledDotScore
        >>> query, value = np.ones((2, 3, 5), "float32"), np.ones((2, 7, 5), "float32")
        >>> Attention(ScaledDotScore())(query, value).shape
        TensorShape([2, 3, 5])

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1,
        https://arxiv.org/abs/1508.04025
    """

    saved_options: tuple[str, ...] = ("score",)

    def __init__(self, score, **kwargs):
        super().__init__(**kwargs)
        self.score = get_score(score, dtype=self.dtype_policy)

    def build(self, query_shape, value_shape=None, key_shape=None):
        if value_shape is None:
            raise ValueError(NO_VALUE)
        super().build(query_shape, value_shape, key_shape)
        key_shape = key_shape or value_shape
        self.memory_sizes = (value_shape[-1], key_shape[-1])
        self.score.build_for_attention(query_shape, key_shape)

    def compute_attention(self, query, value, key, mask, seed):
        """Returns `softmax(score(query, key)) · value` and the weights.

        See `AttentionDescription` for the arguments; keys that the mask excludes have weight 0.
        """
        query, key = self.score.project_query(query), self.score.project_key(key)
        scores = self.score.compare(query, key)
        weights = ops.cast(masked_softmax(scores, mask), self.compute_dtype)  # [B, T, S]
        dropped = weights if seed is None else drop_weights(weights, self.dropout, seed)
        return ops.matmul(dropped, value), weights  # [B, T, Dv]

    @computes("key", "value")
    @promises(UNPLACED, PLAIN)
    def project_memory(self, value, key=None, start_index=0):
        check_built(self)
        return {"key": self.score.project_key(value if key is None else key), "value": value}

    @promises(PAIRWISE, PLAIN)
    def compare(self, query, key, visibility):
        return self.score.compare(self.score.project_query(query), key)

    def compare_layers(self):
        return [self.score]

    @property
    def needs_all_keys(self):
        return self.score.needs_all_keys

    def pair_size(self):
        return self.score.hidden_size

    def max_keys(self):
        return self.score.max_keys

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return (*query_shape[:-1], value_shape[-1])


@keras.saving.register_keras_serializable(package="attention_zoo")
class SelfAttention(Attention):
    """Self-attention with one head: `softmax(Q Kᵀ / √d_k) V`, `Q = X W_q`, `K = X W_k`, `V = X W_v`, without W_o.

    `layer(x)` is `layer(x, x)`; `layer(query, value)` is cross-attention. For several heads, and for positions, see
    `MultiHeadAttention`.

    Args:
        units: d_k, the size of queries and keys, and by default of values, a positive integer. W_q, W_k and W_v are
            [D, d_k], the kernels of `query_dense`, `key_dense` and `value_dense`.
        value_dim: d_v, the size of values and of the output. Default: `units`.
        score: A `Score`, its name, or a callable or Keras layer f(query, key) → scores, as for `get_score`.
        use_bias: Whether the projections have biases.
        kernel_initializer: Initializer of the projections.
        **kwargs: `dropout`, `seed`, `implementation`, `visibility` and `normalization` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`, but `value` defaults to `query`, and `mask`, boolean
    [B, T], masks both, as `keras.layers.TimeDistributed` passes it; with another `value` or a cache it is the mask of
    the query. The output is [B, T, d_v], weights are [B, T, S].

    Example:
        >>> import numpy as np
        >>> from zoo.layers import SelfAttention
        >>> output, weights = SelfAttention(24)(np.ones((1, 6, 16), "float32"), return_attention_scores=True)
        >>> output.shape, weights.shape
        (TensorShape([1, 6, 24]), TensorShape([1, 6, 6]))

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1, equation 1, https://arxiv.org/abs/1706.03762
    """

    saved_options = ("units", "value_dim", "use_bias", "kernel_initializer")

    def __init__(
        self,
        units,
        value_dim=None,
        score="scaled_dot",
        use_bias=False,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(score, **kwargs)
        self.units = check_size("units", units)
        self.value_dim = check_size("value_dim", value_dim, optional=True) or self.units
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.query_dense = self._dense(self.units, "query")
        self.key_dense = self._dense(self.units, "key")
        self.value_dense = self._dense(self.value_dim, "value")

    def _dense(self, units, name):
        return projection(self, units, name, self.use_bias, self.kernel_initializer)

    def __call__(self, query, value=None, *args, **kwargs):
        if value is None and kwargs.get("memory") is None:
            value = query
        has_value_mask = len(args) > 2 or kwargs.get("value_mask") is not None
        if value is query and not has_value_mask and kwargs.get("cache") is None:
            kwargs["value_mask"] = kwargs.get("mask")
        return super().__call__(query, value, *args, **kwargs)

    def call(
        self,
        query,
        value=None,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        *,
        mask=None,
        attention_bias=None,
        start_index=None,
        memory=None,
        cache=None,
        segment_ids=None,
        query_segment_ids=None,
        prefix_length=None,
    ):
        query_mask = mask if query_mask is None else query_mask
        if value is None and memory is None:  # wrappers such as Keras' TimeDistributed call this method directly
            value, value_mask = query, mask if value_mask is None else value_mask
        return super().call(
            query,
            value,
            key,
            query_mask,
            value_mask,
            key_mask,
            attention_mask,
            return_attention_scores,
            training,
            use_causal_mask,
            attention_bias=attention_bias,
            start_index=start_index,
            memory=memory,
            cache=cache,
            segment_ids=segment_ids,
            query_segment_ids=query_segment_ids,
            prefix_length=prefix_length,
        )

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = value_shape or query_shape
        key_shape = key_shape or value_shape
        self.query_dense.build(query_shape)
        self.key_dense.build(key_shape)
        self.value_dense.build(value_shape)
        super().build((*query_shape[:-1], self.units), value_shape, (*key_shape[:-1], self.units))
        self.memory_sizes = (value_shape[-1], key_shape[-1])

    def compute_attention(self, query, value, key, mask, seed):
        query = apply_positionwise(self.query_dense, query)
        key, value = apply_positionwise(self.key_dense, key), apply_positionwise(self.value_dense, value)
        return super().compute_attention(query, value, key, mask, seed)

    @computes("query W_q + b_q")
    @promises(UNPLACED, PLAIN)
    def project_query(self, query, start_index=0):
        return apply_positionwise(self.query_dense, query)

    @computes("key W_k + b_k", "value W_v + b_v")
    @promises(UNPLACED, PLAIN)
    def project_memory(self, value, key=None, start_index=0):
        check_built(self)
        key = apply_positionwise(self.key_dense, value if key is None else key)
        return {"key": self.score.project_key(key), "value": apply_positionwise(self.value_dense, value)}

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return (*query_shape[:-1], self.value_dim)


class NamedAttention(Attention):
    """Base of the single-head attention layers that create their score from their own options.

    A subclass sets `score_class` and passes the options of the score. The configuration contains the options, which are
    attributes, and not the score.

    Args:
        options: Options of the score, by name.
        dtype: Dtype or policy of the layer and of its score.
        **kwargs: `dropout`, `seed`, `implementation`, `visibility` and `normalization` of `BaseAttention`.
    """

    score_class: type[Score]

    def __init__(self, options, dtype=None, **kwargs):
        score = self.score_class(**options, dtype=dtype, name="score")
        super().__init__(score, dtype=dtype, **kwargs)
        for name in options:
            setattr(self, name, getattr(score, name))

    def get_config(self):
        config = super().get_config()
        del config["score"]
        return config


@keras.saving.register_keras_serializable(package="attention_zoo")
class DotAttention(NamedAttention):
    """Dot-product attention: `softmax(query · keyᵀ) · value`, without the scale of `ScaledDotProductAttention`.

    Args:
        **kwargs: `dropout`, `seed`, `implementation`, `visibility` and `normalization` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`; query and key have the same last axis.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import DotAttention
        >>> query, value = np.array([[[0.0, 50.0]]], "float32"), np.array([[[1.0, 0.0], [0.0, 1.0]]], "float32")
        >>> print(np.round(DotAttention()(query, value)[0], 3))
        [[0. 1.]]

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1 ("dot"),
        https://arxiv.org/abs/1508.04025
    """

    score_class = DotScore

    def __init__(self, **kwargs):
        super().__init__({}, **kwargs)


@keras.saving.register_keras_serializable(package="attention_zoo")
class ScaledDotProductAttention(NamedAttention):
    """Scaled dot-product attention: `softmax(query · keyᵀ / √d_k) · value`.

    Args:
        **kwargs: `dropout`, `seed`, `implementation`, `visibility` and `normalization` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`; query and key have the same last axis.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import ScaledDotProductAttention
        >>> query, value = np.ones((2, 3, 5), "float32"), np.ones((2, 7, 5), "float32")
        >>> ScaledDotProductAttention()(query, value).shape
        TensorShape([2, 3, 5])

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", equation 1, https://arxiv.org/abs/1706.03762
    """

    score_class = ScaledDotScore

    def __init__(self, **kwargs):
        super().__init__({}, **kwargs)


@keras.saving.register_keras_serializable(package="attention_zoo")
class GeneralAttention(NamedAttention):
    """General (bilinear) attention: `softmax(query W keyᵀ) · value`.

    Args:
        kernel_initializer: Initializer of W.
        **kwargs: `dropout`, `seed`, `implementation`, `visibility` and `normalization` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import GeneralAttention
        >>> query, value = np.ones((2, 3, 5), "float32"), np.ones((2, 7, 11), "float32")
        >>> GeneralAttention()(query, value).shape
        TensorShape([2, 3, 11])

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1
        ("general"), https://arxiv.org/abs/1508.04025
    """

    score_class = GeneralScore
    saved_options = ("kernel_initializer",)

    def __init__(self, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__({"kernel_initializer": kernel_initializer}, **kwargs)


@keras.saving.register_keras_serializable(package="attention_zoo")
class ConcatAttention(NamedAttention):
    """Concat attention: `softmax(v · tanh(W [query; key])) · value`.

    Args:
        units: Size of the hidden layer of the score, a positive integer. Default: the last axis of the query.
        kernel_initializer: Initializer of W and v.
        **kwargs: `dropout`, `seed`, `implementation`, `visibility` and `normalization` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import ConcatAttention
        >>> query, value = np.ones((2, 3, 5), "float32"), np.ones((2, 7, 11), "float32")
        >>> ConcatAttention(units=13)(query, value).shape
        TensorShape([2, 3, 11])

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1
        ("concat"), https://arxiv.org/abs/1508.04025
    """

    score_class = ConcatScore
    saved_options = ("units", "kernel_initializer")

    def __init__(self, units=None, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__({"units": units, "kernel_initializer": kernel_initializer}, **kwargs)


@keras.saving.register_keras_serializable(package="attention_zoo")
class CosineAttention(NamedAttention):
    """Cosine attention: `softmax(cos(query, key) / τ) · value`.

    With τ = 1 the weights of two keys differ by a factor of at most e²; sharper attention requires a smaller τ.

    Args:
        temperature: τ, or its initial value if it is learned; a positive number.
        learn_temperature: Whether τ is learned.
        **kwargs: `dropout`, `seed`, `implementation`, `visibility` and `normalization` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`; query and key have the same last axis.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import CosineAttention
        >>> query, value = np.array([[[0.0, 9.0]]], "float32"), np.array([[[5.0, 0.0], [0.0, 7.0]]], "float32")
        >>> print(np.round(CosineAttention(temperature=0.05)(query, value)[0], 3))
        [[0. 7.]]

    Reference:
        Graves et al. 2014, "Neural Turing Machines", section 3.3.1, https://arxiv.org/abs/1410.5401;
        with learned temperature: Liu et al. 2022, "Swin Transformer V2", equation 2, https://arxiv.org/abs/2111.09883
    """

    score_class = CosineScore
    saved_options = ("temperature", "learn_temperature")

    def __init__(self, temperature=1.0, learn_temperature=False, **kwargs):
        super().__init__({"temperature": temperature, "learn_temperature": learn_temperature}, **kwargs)


@keras.saving.register_keras_serializable(package="attention_zoo")
class AdditiveAttention(NamedAttention):
    """Additive attention: `softmax(v · tanh(W₁ query + W₂ key + b)) · value`.

    Args:
        units: Size of the hidden layer of the score, a positive integer. Default: the last axis of the query.
        use_bias: Whether the hidden layer has the bias `b`.
        kernel_initializer: Initializer of W₁, W₂ and v.
        **kwargs: `dropout`, `seed`, `implementation`, `visibility` and `normalization` of `BaseAttention`.

    Call arguments, masking and results: see `BaseAttention`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import AdditiveAttention
        >>> query, value = np.ones((2, 3, 5), "float32"), np.ones((2, 7, 11), "float32")
        >>> output, weights = AdditiveAttention(units=13)(query, value, return_attention_scores=True)
        >>> output.shape, weights.shape
        (TensorShape([2, 3, 11]), TensorShape([2, 3, 7]))

    Reference:
        Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
        section A.1.2, https://arxiv.org/abs/1409.0473
    """

    score_class = AdditiveScore
    saved_options = ("units", "use_bias", "kernel_initializer")

    def __init__(self, units=None, use_bias=True, kernel_initializer="glorot_uniform", **kwargs):
        options = {"units": units, "use_bias": use_bias, "kernel_initializer": kernel_initializer}
        super().__init__(options, **kwargs)
