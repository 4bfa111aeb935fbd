"""`get_score`, which returns a score by name or wraps a function, and a score with separate weights for each head."""

import keras
from keras import ops

from zoo.errors import InputError, unknown_name
from zoo.layers.core.base import serialize_shared
from zoo.layers.core.checks import check_size
from zoo.layers.core.facts import computes
from zoo.layers.scores.additive import AdditiveScore, ConcatScore, NormalizedAdditiveScore, TanhConcatScore
from zoo.layers.scores.base import Score
from zoo.layers.scores.location import LocationScore
from zoo.layers.scores.products import CosineScore, DotScore, GeneralScore, ScaledDotScore
from zoo.synonyms import SCORES as SYNONYMS
from zoo.synonyms import meant_by

SCORES = {
    "additive": AdditiveScore,
    "concat": ConcatScore,
    "cosine": CosineScore,
    "dot": DotScore,
    "general": GeneralScore,
    "location": LocationScore,
    "normalized_additive": NormalizedAdditiveScore,
    "scaled_dot": ScaledDotScore,
    "tanh_concat": TanhConcatScore,
}


def get_score(identifier, dtype=None, **options):
    """Returns a score by its name, or one that wraps a callable.

    Args:
        identifier: A `Score`, which is returned unchanged; a name from `SCORES` or of your own registered subclass
            (`"my_layers>DiagonalScore"`), which is created with `options`; or a callable or Keras layer
            f(query, key) → scores, which is wrapped in `CallableScore`. Synonyms are accepted: bahdanau (additive),
            multiplicative and bilinear (general), vaswani (scaled_dot).
        dtype: Dtype or dtype policy of a new score.
        **options: Other arguments of a new score.

    Returns:
        A `Score`.

    Raises:
        ValueError: For an unknown name (the message suggests similar names), or any other object.

    Example:
        >>> from zoo.layers import get_score
        >>> type(get_score("multiplicative")).__name__, get_score("additive", units=5).units
        ('GeneralScore', 5)
        >>> get_score("luong")
        Traceback (most recent call last):
        zoo.errors.InputError: Unknown score 'luong'. Did you mean dot or general or concat?
    """
    if isinstance(identifier, Score):
        return identifier
    if isinstance(identifier, str) and ">" in identifier:
        return _registered_score(identifier)(dtype=dtype, **options)
    if isinstance(identifier, str):
        names = [identifier] if identifier in SCORES else meant_by(identifier, SYNONYMS, SCORES)
        if len(names) != 1:
            raise unknown_name("score", identifier, SCORES, names)
        return SCORES[names[0]](dtype=dtype, **options)
    if callable(identifier) and not isinstance(identifier, type):
        return CallableScore(identifier, dtype=dtype)
    raise ValueError(
        "`score` must be a Score, the name of one, or a callable or Keras layer that takes query and key. "
        f"Received: score={identifier!r}."
    )


def _registered_score(name):
    """Returns the subclass of `Score` that is registered as `package>Class`."""
    cls = keras.saving.get_registered_object(name)
    if not (isinstance(cls, type) and issubclass(cls, Score)):
        raise InputError(
            f"No score is registered as {name!r}: register it by keras.saving.register_keras_serializable, "
            "and import its module first."
        )
    return cls


@keras.saving.register_keras_serializable(package="attention_zoo")
class CallableScore(Score):
    """Your own function or Keras layer as a score: `score(q, k) = function(q, k)`.

    The weights of a layer are built, trained and saved with the score. The function takes all queries and keys at once,
    but the score of a pair must depend on these two alone: attention may be computed in chunks, and decoding computes
    it step by step. The keys are not projected in advance; to project them once for a decoder, derive from `Score`.

    Args:
        function: A callable or Keras layer `function(query, key)` that returns scores [..., T, S]. To be saved, it must
            be registered: `@keras.saving.register_keras_serializable()`.
        hidden_size: How many numbers the function computes for each pair of a query and a key, a positive integer. The
            number of queries in a chunk depends on it.

    Call arguments:
        query: [..., T, Dq].
        key: [..., S, Dk].

    Returns:
        Scores [..., T, S].

    Raises:
        ValueError: If `function` is not callable or returns another shape, or on saving if it is not registered.

    Example:
        >>> import numpy as np
        >>> from keras import ops
        >>> from zoo.layers import Attention
        >>> def negative_distance(query, key):
        ...     return -ops.sum(ops.square(ops.expand_dims(query, -2) - ops.expand_dims(key, -3)), axis=-1)
        >>> query, value = np.array([[[3.0], [20.0]]], "float32"), np.array([[[0.0], [10.0], [20.0]]], "float32")
        >>> print(np.round(Attention(negative_distance)(query, value)[0], 3))
        [[ 0.]
         [20.]]

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1, which
        defines the score as any function of the two states, https://arxiv.org/abs/1508.04025
    """

    def __init__(self, function, hidden_size=1, **kwargs):
        super().__init__(**kwargs)
        if not callable(function) or isinstance(function, type):
            raise ValueError(
                "`function` must be a callable or a Keras layer that takes query and key. "
                f"Received: function={function!r}."
            )
        self.function = function
        self.hidden_size = check_size("hidden_size", hidden_size)

    def copy(self, name):
        if isinstance(self.function, keras.layers.Layer):
            return super().copy(name)
        return type(self)(self.function, self.hidden_size, dtype=self.dtype_policy, name=name)  # no weights to copy

    def build(self, query_shape, key_shape):
        if isinstance(self.function, keras.layers.Layer) and not self.function.built:
            # Calls the layer, since some layers are built only by their first call.
            self.function(*(keras.KerasTensor(shape, self.compute_dtype) for shape in (query_shape, key_shape)))

    def compare(self, query, key):
        scores = self.function(query, key)
        expected = self.compute_output_shape(tuple(query.shape), tuple(key.shape))
        if not _may_equal(tuple(scores.shape), expected):
            raise ValueError(
                f"`function` must return scores [..., T, S] of shape {expected}. "
                f"Received: shape={tuple(scores.shape)} from function={self.function!r}."
            )
        return ops.cast(scores, self.compute_dtype)

    def get_config(self):
        if not hasattr(self.function, "get_config") and not _is_registered(self.function):
            raise ValueError(
                "`function` must be registered to be saved: decorate it by "
                "`@keras.saving.register_keras_serializable()`, or make it a Keras layer. "
                f"Received: function={self.function!r}."
            )
        function = serialize_shared(self.function)
        # `build` builds a reloaded layer; Keras would build it for only the first of its two inputs.
        function.pop("build_config", None)
        return {**super().get_config(), "function": function, "hidden_size": self.hidden_size}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "function": keras.saving.deserialize_keras_object(config["function"])})


def _may_equal(shape, expected):
    return len(shape) == len(expected) and all(
        size == other or not (isinstance(size, int) and isinstance(other, int))
        for size, other in zip(shape, expected, strict=True)
    )


def _is_registered(function):
    name = getattr(function, "__name__", None)  # a partial has none
    if name is None:
        return False
    return keras.saving.get_registered_object(keras.saving.get_registered_name(function)) is function


@keras.saving.register_keras_serializable(package="attention_zoo")
class PerHeadScore(Score):
    """A copy of a score for each head, with separate weights: `scoreᵢ(qᵢ, kᵢ)`.

    `MultiHeadAttention(..., share_score=False)` wraps its score in this one. The scores of the heads are computed one
    after another, which takes longer than those of all heads at once with shared weights.

    Args:
        score: A score, as `get_score` takes it. Every head has a copy of it with new weights.
        num_heads: N, a positive integer.

    Call arguments:
        query: [B, N, T, Dq].
        key: [B, N, S, Dk].

    Returns:
        Scores [B, N, T, S].

    Raises:
        ValueError: If queries or keys have another number of heads.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import PerHeadScore
        >>> score = PerHeadScore("additive", num_heads=2)
        >>> score(np.ones((1, 2, 3, 5), "float32"), np.ones((1, 2, 4, 5), "float32")).shape, score.count_params()
        (TensorShape([1, 2, 3, 4]), 120)

    Reference:
        Zhang et al. 2021, "Dive into Deep Learning", section 11.5, in which the attention f of each head is additive or
        scaled dot product, https://d2l.ai/chapter_attention-mechanisms-and-transformers/multihead-attention.html
    """

    saved_options = ("score", "num_heads")

    def __init__(self, score, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = check_size("num_heads", num_heads)
        score = get_score(score, dtype=self.dtype_policy)
        self.head_scores = [score.copy(f"head_{head}") for head in range(self.num_heads)]

    @property
    def score(self):
        """The score of the first head."""
        return self.head_scores[0]

    @property
    def hidden_size(self):
        """`hidden_size` of the score of a head."""
        return self.score.hidden_size

    @property
    def needs_equal_sizes(self):
        """`needs_equal_sizes` of the score of a head."""
        return self.score.needs_equal_sizes

    @property
    def needs_all_keys(self):
        """`needs_all_keys` of the score of a head."""
        return self.score.needs_all_keys

    @property
    def max_keys(self):
        """`max_keys` of the score of a head."""
        return self.score.max_keys

    def build(self, query_shape, key_shape):
        self._check_heads(query=query_shape, key=key_shape)
        for score in self.head_scores:
            score.build((query_shape[0], *query_shape[2:]), (key_shape[0], *key_shape[2:]))

    def _check_heads(self, **shapes):
        for name, shape in shapes.items():
            if len(shape) != 4 or shape[1] not in (None, self.num_heads):
                raise ValueError(
                    f"`{name}` must be [B, {self.num_heads}, length, size] for a score with separate weights for "
                    f"{self.num_heads} heads. Received: shape={tuple(shape)}."
                )

    def _sizes(self, query_shape, key_shape):
        return {"num_heads": query_shape[1], **self.score._sizes(query_shape, key_shape)}

    def get_config(self):
        config = super().get_config()
        config["score"].pop("build_config", None)  # only copies of it are built
        return config

    def _apply_to_heads(self, method, *tensors):
        """Returns [B, N, ...]: a method of each head's score, applied to that head of tensors [B, N, ...]."""
        heads = [
            getattr(score, method)(*(tensor[:, head] for tensor in tensors))
            for head, score in enumerate(self.head_scores)
        ]
        return ops.stack(heads, axis=1)

    @computes("its own projection in each head")
    def project_query(self, query):
        self._check_heads(query=query.shape)  # the number of heads may have been unknown in `build`
        return self._apply_to_heads("project_query", query)

    @computes("its own projection in each head")
    def project_key(self, key):
        self._check_heads(key=key.shape)
        return self._apply_to_heads("project_key", key)

    def compare(self, query, key):
        return self._apply_to_heads("compare", query, key)
