"""Base of the positions: terms of attention that depend on the positions of a query and a key."""

import keras
from keras import backend, ops

from zoo.layers.core.base import SavesOptions
from zoo.layers.core.facts import PAIRWISE, promises


def consecutive(start_index, length):
    """Returns `start_index` … `start_index + length − 1`, int32 [length]; both are integers or scalar tensors."""
    if isinstance(length, int) and length == 1 and not isinstance(start_index, int):  # every step of decoding
        return ops.reshape(ops.cast(start_index, "int32"), (1,))
    return ops.arange(length, dtype="int32") + ops.cast(start_index, "int32")


def rates(size, max_wavelength):
    """Returns `w^(−2i/size)`, the angles of position 1, float32 [size/2]."""
    return ops.convert_to_tensor([max_wavelength ** (-index / size) for index in range(0, size, 2)], dtype="float32")


def angles(positions, rates):
    """Returns `p · rate` of positions p [..., T], [..., T, size/2], in float32: bfloat16 cannot tell 258 from 257."""
    return ops.cast(positions, "float32")[..., None] * rates


def check_positions(positions, start_index, length):
    """Returns positions that a caller gives in place of a `start_index`, int32 [T] or [B, T]; T is `length`.

    Raises:
        ValueError: If there is a `start_index` as well, or they are no integers, or of another rank or length.
    """
    if not isinstance(start_index, int) or start_index:
        raise ValueError(f"Give `positions` or `start_index`, not both. Received: start_index={start_index}.")
    positions = ops.convert_to_tensor(positions)
    dtype, shape = backend.standardize_dtype(positions.dtype), tuple(positions.shape)
    if not backend.is_int_dtype(dtype):
        raise ValueError(f"`positions` must be integers. Received: dtype={dtype}.")
    if len(shape) not in (1, 2) or (isinstance(shape[-1], int) and isinstance(length, int) and shape[-1] != length):
        raise ValueError(f"`positions` must be [T] or [B, T], T = {length}. Received: shape={shape}.")
    return ops.cast(positions, "int32")


def distances(query_positions, key_positions):
    """Returns how far each key [S] is after each query [T] (negative: before it), int32 [T, S]."""
    query_positions, key_positions = (
        ops.cast(ops.convert_to_tensor(positions), "int32") for positions in (query_positions, key_positions)
    )
    return key_positions[None, :] - query_positions[:, None]


class Positions(SavesOptions):
    """Base of the positions: an attention layer calls these methods of its object, most of which change nothing.

    `score(rotate(encode(x) W_q), rotate(encode(y) W_k)) + scores + bias` before the softmax, and `+ values` after the
    weighted sum; `rotate_query` and `rotate_key` are `rotate` where they are not overridden. A subclass overrides the
    terms that it adds and, if it has weights, `create_weights`; `needs` names the sizes of the weights.
    `needs_equal_sizes` says whether the heads of queries and keys must have the same size.

    Several attention layers may hold one object and share its weights, also when reloaded from a `.keras` file.

    Positions count from the first key. Without `start_index` the queries are at the end of the keys: if there are more
    queries than keys, the first ones have negative positions.

    Args:
        **kwargs: Options of `keras.layers.Layer`.

    Returns:
        Each method says what it returns; the absolute positions and the rotary ones can also be called as layers.

    Example:
        >>> import numpy as np
        >>> from keras import ops
        >>> from zoo.layers import MultiHeadAttention, Positions
        >>> class Neighbours(Positions):
        ...     def bias(self, query_positions, key_positions):
        ...         near = ops.abs(query_positions[:, None] - key_positions) <= 1  # [T, S]
        ...         return ops.where(near, 0.0, -1e9)[None]
        >>> inputs = np.ones((1, 4, 8), "float32")
        >>> layer = MultiHeadAttention(num_heads=2, key_dim=4, positions=Neighbours())
        >>> _, weights = layer(inputs, inputs, return_attention_scores=True)
        >>> print(np.round(weights[0, 0], 2))
        [[0.5  0.5  0.   0.  ]
         [0.33 0.33 0.33 0.  ]
         [0.   0.33 0.33 0.33]
         [0.   0.   0.5  0.5 ]]
    """

    may_be_shared = True
    needs: tuple[str, ...] = ()
    needs_equal_sizes = False
    needs_products = False
    """Whether they mean what they say only where queries and keys are multiplied with each other as they are."""

    @property
    def acts_on_scores(self):
        """Whether scores or weighted sums get a term, which fused kernels do not support."""
        methods = ("bias", "scores", "values")
        return any(getattr(type(self), name) is not getattr(Positions, name) for name in methods)

    def build_for_attention(self, num_heads, key_dim, value_dim, query_dim, memory_dim):
        """Creates the weights for use in an attention layer.

        Args:
            num_heads: N.
            key_dim: Size of a head of query and key.
            value_dim: Size of a head of value.
            query_dim: Last axis of the query before its projection.
            memory_dim: Last axis of the key before its projection.

        Raises:
            ValueError: If the object has been built for other sizes.
        """
        sizes = {
            "num_heads": num_heads,
            "key_dim": key_dim,
            "value_dim": value_dim,
            "query_dim": query_dim,
            "memory_dim": memory_dim,
        }
        sizes = {name: sizes[name] for name in self.needs}
        if not self.built:
            with keras.name_scope(self.name, caller=self):
                self.create_weights(**sizes)
            self.sizes = sizes
            self.built = True
        elif dict(self.sizes) != sizes:
            raise ValueError(
                "Attention layers of other sizes need another `Positions` object. "
                f"Received: {sizes}, where {self.name} has been built for {dict(self.sizes)}."
            )

    def create_weights(self, **sizes):
        """Creates no weights.

        Args:
            **sizes: The sizes that `needs` names.
        """

    def encode(self, inputs, start_index=0):
        """Returns unprojected queries or keys with their positions.

        Args:
            inputs: [B, T, D].
            start_index: Position of the first row, an integer or a scalar tensor.

        Returns:
            [B, T, encoded_size(D)].
        """
        return inputs

    def encoded_size(self, size):
        """Returns the last axis of what `encode` makes of inputs [B, T, size]."""
        return size

    def rotate(self, heads, start_index=0):
        """Returns projected queries or keys with their positions.

        Args:
            heads: [B, N, T, H].
            start_index: Position of the first row, an integer or a scalar tensor.

        Returns:
            [B, N, T, H].
        """
        return heads

    def rotate_query(self, heads, start_index=0):
        """Returns projected queries with their positions: `rotate`, unless queries and keys are treated differently."""
        return self.rotate(heads, start_index)

    def rotate_key(self, heads, start_index=0):
        """Returns projected keys with their positions: `rotate`, unless queries and keys are treated differently."""
        return self.rotate(heads, start_index)

    @promises(PAIRWISE)
    def bias(self, query_positions, key_positions):
        """Returns what is added to the scores and depends on positions only, float32 [1 or N, T, S], or `None`.

        Args:
            query_positions: int32 [T].
            key_positions: int32 [S].
        """

    @promises(PAIRWISE)
    def scores(self, query, query_positions, key_positions):
        """Returns what is added to the scores and depends on the query, [B, N, T, S], or `None`.

        Args:
            query: Projected queries, not scaled, [B, N, T, H].
            query_positions: int32 [T].
            key_positions: int32 [S].
        """

    @promises(PAIRWISE)
    def values(self, weights, query_positions, key_positions):
        """Returns what is added to the weighted sum of the values, [B, N, T, value_dim], or `None`.

        Args:
            weights: Attention weights, after the dropout, [B, N, T, S].
            query_positions: int32 [T].
            key_positions: int32 [S].
        """

    def call(self, *args, **kwargs):
        raise NotImplementedError(
            f"{type(self).__name__} works inside an attention layer, not by itself: "
            f"`MultiHeadAttention(..., positions={type(self).__name__}(...))`."
        )
