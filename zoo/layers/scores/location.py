"""The location score, which depends on the positions of the keys."""

import keras
from keras import ops

from zoo.layers.core.checks import check_size
from zoo.layers.core.facts import computes
from zoo.layers.core.projections import apply_positionwise, projection
from zoo.layers.scores.base import Score


@keras.saving.register_keras_serializable(package="attention_zoo")
class LocationScore(Score):
    """Location score: `score(q, s) = (W q)_s`, of a query and a key's position s; the key itself is not used.

    Keys from position `max_length` on have no score: attention layers mask them, in addition to all other masks.

    Args:
        max_length: Number of positions with a score, a positive integer.
        kernel_initializer: Initializer of W, which is stored transposed, [Dq, `max_length`].

    Call arguments:
        query: [..., T, Dq].
        key: [..., S, Dk]; only S is used.

    Returns:
        Scores [..., T, S].

    Raises:
        ValueError: If the number of keys is known before the graph runs and exceeds `max_length`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import LocationScore
        >>> LocationScore(max_length=5)(np.ones((1, 2, 7), "float32"), np.ones((1, 3, 4), "float32")).shape
        TensorShape([1, 2, 3])

    Reference:
        Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation", section 3.1,
        equation 8, https://arxiv.org/abs/1508.04025
    """

    saved_options = ("max_length", "kernel_initializer")
    needs = ("query_dim",)
    needs_all_keys = True

    @property
    def max_keys(self):
        """Number of keys that have a score."""
        return self.max_length

    def __init__(self, max_length=512, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.max_length = check_size("max_length", max_length)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.query_dense = projection(self, self.max_length, "query", kernel_initializer=self.kernel_initializer)

    def build(self, query_shape, key_shape):
        self.check_length(key_shape[-2])
        self.query_dense.build(query_shape)

    def check_length(self, length):
        """Raises an error if a known number of keys exceeds `max_length`; `None` and tensors are unknown numbers."""
        if isinstance(length, int) and length > self.max_length:
            raise ValueError(
                f"`max_length` must be at least the number of keys. "
                f"Received: max_length={self.max_length}, and {length} keys."
            )

    @computes("W query")
    def project_query(self, query):
        return apply_positionwise(self.query_dense, query)  # [..., T, max_length]

    @computes("0")
    def project_key(self, key):
        # Only the number of keys is used, but the keys stay in the graph: their gradients are zeros, not missing.
        key = ops.cast(key[..., :1], self.compute_dtype)
        return ops.where(False, key, ops.zeros_like(key))

    def compare(self, query, key):
        length = ops.shape(key)[-2]
        if not _is_inferring_shapes():
            self.check_length(length)
        if not isinstance(length, int) or length > self.max_length:
            # One more column for each key always suffices; attention layers mask the keys of these columns.
            padding = ops.zeros((*ops.shape(query)[:-1], length), dtype=query.dtype)
            query = ops.concatenate([query, padding], axis=-1)
        return query[..., :length] + ops.swapaxes(key, -1, -2)


def _is_inferring_shapes():
    """Returns whether Keras infers shapes, for which on PyTorch it replaces unknown sizes by arbitrary ones."""
    with keras.SymbolicScope() as scope:
        return scope.original_scope is not None
