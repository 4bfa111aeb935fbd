"""A user's function or layer as a score."""

import keras
from keras import ops

from zoo.layers.core.checks import check_size
from zoo.layers.core.saving import serialize_shared
from zoo.layers.scores.base import Score


@keras.saving.register_keras_serializable(package="attention_zoo")
class CallableScore(Score):
    """A user's score: `score(q, k) = function(q, k)`, for a function or a Keras layer.

    The weights of a layer are built, trained and saved with the score. The function gets all queries and keys at once,
    but the score of a pair must depend on these two alone: attention may be computed chunk by chunk, and decoding step
    by step. Nothing is projected in advance; for a score whose keys a decoder projects once, derive from `Score`.

    Args:
        function: A callable or Keras layer `function(query, key)` that returns scores [..., T, S]. To be saved, it must
            be registered: `@keras.saving.register_keras_serializable()`.
        hidden_size: How many numbers the function computes for each pair of a query and a key, a positive integer; it
            decides how many queries make a chunk.

    Call arguments:
        query: [..., T, Dq].
        key: [..., S, Dk].

    Returns:
        Scores [..., T, S].

    Raises:
        ValueError: If `function` is not callable, returns another shape, or must be saved and is not registered.

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
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1, where the
        score is any function of the two states, https://arxiv.org/abs/1508.04025
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
            # Called and not only built, since a layer may be built by its first call only.
            self.function(*(keras.KerasTensor(shape, self.compute_dtype) for shape in (query_shape, key_shape)))

    def compare(self, query, key):
        scores = self.function(query, key)
        expected = self.compute_output_shape(tuple(query.shape), tuple(key.shape))
        if not _may_equal(tuple(scores.shape), expected):
            raise ValueError(
                f"`function` must return scores [..., T, S], here of shape {expected}. "
                f"Received: shape={tuple(scores.shape)} from function={self.function!r}."
            )
        return ops.cast(scores, self.compute_dtype)

    def get_config(self):
        if not hasattr(self.function, "get_config") and not _is_registered(self.function):
            raise ValueError(
                "`function` must be registered to be saved: put `@keras.saving.register_keras_serializable()` above "
                f"it, or make it a Keras layer. Received: function={self.function!r}."
            )
        function = serialize_shared(self.function)
        # A reloaded layer is built by `build`; Keras would build it for the first of its two inputs only.
        function.pop("build_config", None)
        return {**super().get_config(), "function": function, "hidden_size": self.hidden_size}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "function": keras.saving.deserialize_keras_object(config["function"])})


def _may_equal(shape, expected):
    return len(shape) == len(expected) and all(
        size == wanted or not (isinstance(size, int) and isinstance(wanted, int))
        for size, wanted in zip(shape, expected, strict=True)
    )


def _is_registered(function):
    name = getattr(function, "__name__", None)  # a partial has none
    if name is None:
        return False
    return keras.saving.get_registered_object(keras.saving.get_registered_name(function)) is function
