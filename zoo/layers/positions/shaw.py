"""Relative positions as learned vectors that are added to keys and values."""

import functools
import operator

import keras
from keras import backend, ops

from zoo.layers.core.checks import check_size
from zoo.layers.core.kernels import sums_of_rows
from zoo.layers.core.overrides import PAIRWISE, promises
from zoo.layers.core.projections import clone_initializer
from zoo.layers.positions.base import Positions, distances


def _wide(tensor):
    """Returns float32 or wider: thousands of keys may meet in one sum, which half precision would leave short."""
    return ops.cast(tensor, backend.result_type(backend.standardize_dtype(tensor.dtype), "float32"))


def _to_rows(tensor):
    """Returns [T · K, M] from [..., T, K]: gathers and segment sums are fast over rows."""
    *leading, length, size = ops.shape(tensor)
    count = functools.reduce(operator.mul, leading)
    return ops.reshape(ops.transpose(ops.reshape(tensor, (count, length, size)), (1, 2, 0)), (length * size, count))


def _from_rows(rows, shape):
    """Returns [..., T, K] = `shape` from [T · K, M]."""
    return ops.reshape(ops.transpose(ops.reshape(rows, (*shape[-2:], ops.shape(rows)[-1])), (2, 0, 1)), shape)


def _row_indices(indices, size):
    """Returns the indices among T · size rows, [T · S], for `indices` [T, S] below `size` of each t."""
    offsets = ops.arange(ops.shape(indices)[0], dtype="int32") * size
    return ops.reshape(indices + offsets[:, None], (-1,))


def pick(table, indices):
    """Returns `table[..., t, indices[t, s]]`, [..., T, S], of a table [..., T, K]."""
    shape = ops.shape(table)
    picked = ops.take(_to_rows(table), _row_indices(indices, table.shape[-1]), axis=0)
    return _from_rows(picked, (*shape[:-1], ops.shape(indices)[1]))


def collect(weights, indices, size):
    """Returns the sums of `weights[..., t, s]` over the s with the same `indices[t, s]` < `size` = K, [..., T, K]."""
    shape = ops.shape(weights)
    sums = sums_of_rows(_to_rows(weights), _row_indices(indices, size), shape[-2] * size)
    return _from_rows(sums, (*shape[:-1], size))


@keras.saving.register_keras_serializable(package="attention_zoo")
class ShawRelativePositions(Positions):
    """Learned vectors for the distance of a key: `e_ij = q_i · (k_j + aᴷ_ij) / √d`, `z_i = Σ_j α_ij (v_j + aⱽ_ij)`.

    `a_ij = w[clip(j − i, −k, k)]`: keys farther than k share a vector, and all heads share all vectors. The vectors of
    the pairs are never created: the query is multiplied with each of the 2k + 1 vectors once, and every pair picks its
    product; weights of equal distance are summed before they are multiplied with the vectors. That adds O(T · S) for
    each head to the attention itself.

    Args:
        max_distance: k, a positive integer.
        use_values: Whether vectors are also added to values (in the paper's section 4.3, those of keys alone suffice).
        initializer: Initializer of the vectors.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import ShawRelativePositions
        >>> positions = ShawRelativePositions(max_distance=2, initializer="ones")
        >>> positions.build_for_attention(num_heads=2, key_dim=4, value_dim=3, query_dim=8, memory_dim=8)
        >>> print(np.array(positions.scores(np.ones((1, 2, 1, 4), "float32"), [0], [0, 1, 2])))
        [[[[2. 2. 2.]]
        <BLANKLINE>
          [[2. 2. 2.]]]]

    Reference:
        Shaw et al. 2018, "Self-Attention with Relative Position Representations", equations 3-5,
        https://arxiv.org/abs/1803.02155
    """

    saved_options = ("max_distance", "use_values", "initializer")
    needs = ("key_dim", "value_dim")
    needs_equal_sizes = True

    def __init__(self, max_distance, use_values=True, initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.max_distance = check_size("max_distance", max_distance)
        self.use_values = use_values
        self.initializer = keras.initializers.get(initializer)

    def create_weights(self, key_dim, value_dim):
        self.key_embeddings = self._embeddings("key_embeddings", key_dim)
        if self.use_values:
            self.value_embeddings = self._embeddings("value_embeddings", value_dim)

    def _embeddings(self, name, size):
        shape = (2 * self.max_distance + 1, size)
        return self.add_weight(name=name, shape=shape, initializer=clone_initializer(self.initializer))

    def _indices(self, query_positions, key_positions):
        """Returns the rows of the tables, int32 [T, S]."""
        steps = distances(query_positions, key_positions)
        return ops.clip(steps, -self.max_distance, self.max_distance) + self.max_distance

    @promises(PAIRWISE)
    def scores(self, query, query_positions, key_positions):
        query = ops.convert_to_tensor(query)
        embeddings = ops.cast(self.key_embeddings, query.dtype)
        # Scaling before the product keeps float16 scores in range.
        products = ops.matmul(query * query.shape[-1] ** -0.5, ops.transpose(embeddings))  # [B, N, T, 2k+1]
        picked = pick(_wide(products), self._indices(query_positions, key_positions))
        return ops.cast(picked, query.dtype)

    @promises(PAIRWISE)
    def values(self, weights, query_positions, key_positions):
        if not self.use_values:
            return None
        weights = ops.convert_to_tensor(weights)
        indices = self._indices(query_positions, key_positions)
        sums = ops.cast(collect(_wide(weights), indices, 2 * self.max_distance + 1), weights.dtype)
        return ops.matmul(sums, ops.cast(self.value_embeddings, weights.dtype))  # [B, N, T, value_dim]
