"""Base class of positions: the terms of attention that depend on the positions of queries and keys."""

import keras
from keras import backend, ops

from zoo.layers.core.base import SavesOptions
from zoo.layers.core.facts import PAIRWISE, promises
from zoo.layers.core.graphs import computed_once


def consecutive(start_index, length):
    """Returns `start_index` … `start_index + length − 1`, int32 [length]; both are integers or scalar tensors.

    If `start_index` is [B], one for each row, the result is [B, length].
    """
    if isinstance(length, int) and length == 1 and not isinstance(start_index, int):  # every step of decoding
        return computed_once("position", lambda start: ops.expand_dims(start, -1), ops.cast(start_index, "int32"))
    start_index = ops.cast(start_index, "int32")
    return ops.arange(length, dtype="int32") + (start_index[:, None] if len(start_index.shape) else start_index)


def rates(size, max_wavelength):
    """Returns `w^(−2i/size)`, the angles of position 1, float32 [size/2]."""
    return ops.convert_to_tensor([max_wavelength ** (-index / size) for index in range(0, size, 2)], dtype="float32")


def angles(positions, rates):
    """Returns `p · rate` of positions p [..., T], [..., T, size/2], in float32: in bfloat16, 257 and 258 are equal."""
    return ops.cast(positions, "float32")[..., None] * rates


def check_positions(positions, start_index, length):
    """Returns the argument `positions`, which replaces `start_index`, as int32 [T] or [B, T]; T is `length`.

    Raises:
        ValueError: If there is a `start_index` as well, or positions are not integers, or have another rank or length.
    """
    if not isinstance(start_index, int) or start_index:
        raise ValueError(f"Pass `positions` or `start_index`, not both. Received: start_index={start_index}.")
    positions = ops.convert_to_tensor(positions)
    dtype, shape = backend.standardize_dtype(positions.dtype), tuple(positions.shape)
    if not backend.is_int_dtype(dtype):
        raise ValueError(f"`positions` must be integers. Received: dtype={dtype}.")
    if len(shape) not in (1, 2) or (isinstance(shape[-1], int) and isinstance(length, int) and shape[-1] != length):
        raise ValueError(f"`positions` must be [T] or [B, T], T = {length}. Received: shape={shape}.")
    return ops.cast(positions, "int32")


def distances(query_positions, key_positions):
    """Returns key position minus query position for each query [T] and key [S], int32 [T, S]."""
    query_positions, key_positions = (
        ops.cast(ops.convert_to_tensor(positions), "int32") for positions in (query_positions, key_positions)
    )
    return key_positions[None, :] - query_positions[:, None]


class Positions(SavesOptions):
    """Base of the positions, whose methods an attention layer calls; by default they change nothing.

    Before the softmax the layer computes `score(rotate(encode(x) W_q), rotate(encode(y) W_k)) + scores + bias`, and
    after the weighted sum it adds `values`; `rotate_query` and `rotate_key` are `rotate` unless overridden. A subclass
    overrides the terms that it adds and, if it has weights, `create_weights`. `needs` names the sizes on which the
    weights depend, and `needs_equal_sizes` is whether the heads of queries and keys must have the same size.

    Several attention layers may share one object and its weights, even if reloaded from a `.keras` file.

    Positions count from the first key. Without `start_index` the queries are at the end of the keys: if there are more
    queries than keys, the first queries have negative positions.

    Args:
        **kwargs: Options of `keras.layers.Layer`.

    Returns:
        See the methods. Absolute and rotary positions can also be called as layers.

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
    """Whether the positions require scores that are products of queries and keys themselves, not of their features."""

    @property
    def acts_on_scores(self):
        """Whether the positions add to scores or weighted sums, which fused kernels do not support."""
        methods = ("bias", "scores", "values")
        return any(getattr(type(self), name) is not getattr(Positions, name) for name in methods)

    def build_for_attention(self, num_heads, key_dim, value_dim, query_dim, memory_dim):
        """Creates the weights for an attention layer.

        Args:
            num_heads: N.
            key_dim: Size of a head of queries and keys.
            value_dim: Size of a head of values.
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
                "Attention layers of other sizes require another `Positions` object. "
                f"Received: {sizes}, but {self.name} was built for {dict(self.sizes)}."
            )

    def create_weights(self, **sizes):
        """Creates no weights.

        Args:
            **sizes: The sizes that `needs` names.
        """

    def encode(self, inputs, start_index=0):
        """Returns queries or keys with their positions, before their projection.

        Args:
            inputs: [B, T, D].
            start_index: Position of the first row, an integer or a scalar tensor.

        Returns:
            [B, T, encoded_size(D)].
        """
        return inputs

    def encoded_size(self, size):
        """Returns the last axis of the result of `encode` for inputs [B, T, size]."""
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
        """Returns projected queries with their positions; by default the result of `rotate`."""
        return self.rotate(heads, start_index)

    def rotate_key(self, heads, start_index=0):
        """Returns projected keys with their positions; by default the result of `rotate`."""
        return self.rotate(heads, start_index)

    @promises(PAIRWISE)
    def bias(self, query_positions, key_positions):
        """Returns a term of the scores that depends on positions alone, float32 [1 or N, T, S], or `None`.

        Args:
            query_positions: int32 [T].
            key_positions: int32 [S].
        """

    @promises(PAIRWISE)
    def scores(self, query, query_positions, key_positions):
        """Returns a term of the scores that depends on the query, [B, N, T, S], or `None`.

        Args:
            query: Projected queries, not scaled, [B, N, T, H].
            query_positions: int32 [T].
            key_positions: int32 [S].
        """

    @promises(PAIRWISE)
    def values(self, weights, query_positions, key_positions):
        """Returns a term of the weighted sum of the values, [B, N, T, value_dim], or `None`.

        Args:
            weights: Attention weights after dropout, [B, N, T, S].
            query_positions: int32 [T].
            key_positions: int32 [S].
        """

    def call(self, *args, **kwargs):
        raise NotImplementedError(
            f"{type(self).__name__} cannot be called; pass it to an attention layer: "
            f"`MultiHeadAttention(..., positions={type(self).__name__}(...))`."
        )
