"""Relative positions as terms of scores: ALiBi, Shaw's vectors, T5's buckets."""

import functools
import numbers
import operator

import keras
from keras import backend, ops

from zoo.layers.core.checks import check_size
from zoo.layers.core.facts import PAIRWISE, promises
from zoo.layers.core.kernels import sums_of_rows
from zoo.layers.core.projections import clone_initializer
from zoo.layers.positions.base import Positions, distances
from zoo.row_selection import take


def head_slopes(num_heads):
    """Returns the slope of each head.

    For N a power of two, the slopes are `2^(−8n/N)`, n = 1 … N. Otherwise, as in the code of the paper's authors, they
    are those of the largest power of two below N, followed by every other slope of twice that power.
    """

    def slopes(power, step):
        return [2 ** (-8 * n / power) for n in range(1, power + 1, step)]

    power = 2 ** (num_heads.bit_length() - 1)
    return slopes(power, 1) + slopes(2 * power, 2)[: num_heads - power]


@keras.saving.register_keras_serializable(package="attention_zoo")
class ALiBiPositions(Positions):
    """Attention with linear biases: adds `−m · |i − j|` to the score of query i and key j.

    The slope m is a constant of each head; there are no weights. With a causal mask this is the paper's `−m · (i − j)`;
    without one, keys on both sides are penalised alike.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import ALiBiPositions
        >>> positions = ALiBiPositions()
        >>> positions.build_for_attention(num_heads=8, key_dim=4, value_dim=4, query_dim=32, memory_dim=32)
        >>> print(np.array(positions.bias([1, 2], [0, 1, 2]))[0])
        [[-0.5 -0.  -0.5]
         [-1.  -0.5 -0. ]]

    Reference:
        Press et al. 2022, "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
        section 3, https://arxiv.org/abs/2108.12409
    """

    needs = ("num_heads",)

    def create_weights(self, num_heads):
        self.slopes = head_slopes(num_heads)

    @promises(PAIRWISE)
    def bias(self, query_positions, key_positions):
        steps = ops.cast(ops.abs(distances(query_positions, key_positions)), "float32")  # [T, S]
        return -steps * ops.convert_to_tensor(list(self.slopes), "float32")[:, None, None]


def _wide(tensor):
    """Returns a tensor in float32 or wider: half precision would lose parts of sums over thousands of keys."""
    return ops.cast(tensor, backend.result_type(backend.standardize_dtype(tensor.dtype), "float32"))


def _to_rows(tensor):
    """Returns [T · K, M] from [..., T, K], since gathers and segment sums are fast over rows."""
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
    picked = take(_to_rows(table), _row_indices(indices, table.shape[-1]))
    return _from_rows(picked, (*shape[:-1], ops.shape(indices)[1]))


def collect(weights, indices, size):
    """Returns the sums of `weights[..., t, s]` over the s with the same `indices[t, s]` < `size` = K, [..., T, K]."""
    shape = ops.shape(weights)
    sums = sums_of_rows(_to_rows(weights), _row_indices(indices, size), shape[-2] * size)
    return _from_rows(sums, (*shape[:-1], size))


@keras.saving.register_keras_serializable(package="attention_zoo")
class ShawRelativePositions(Positions):
    """Learned vectors for the distance of a key: `e_ij = q_i · (k_j + aᴷ_ij) / √d`, `z_i = Σ_j α_ij (v_j + aⱽ_ij)`.

    `a_ij = w[clip(j − i, −k, k)]`: keys farther than k share a vector, and all heads share all vectors. No vector is
    created for a pair: each query is multiplied by the 2k + 1 vectors once and each pair gathers its product; weights
    of equal distance are summed before they are multiplied by the vectors. This adds O(T · S) for each head to the
    cost.

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


def distance_buckets(num_buckets, max_distance):
    """Returns the bucket of each distance 0 … `max_distance`, of K ≥ 2 buckets.

    Half of the buckets, E, are for single distances d < E; the others share the buckets E … K − 1, which grow by a
    constant factor up to `max_distance`: `E + ⌊log(d/E) / log(max_distance/E) · (K − E)⌋`, at most K − 1.
    """
    exact = num_buckets // 2
    shared = num_buckets - exact
    buckets, extra = list(range(exact)), 0
    for distance in range(exact, max_distance + 1):
        # Computed with integers, since logarithms may round down at the border of two buckets.
        while distance**shared * exact ** (extra + 1) >= max_distance ** (extra + 1) * exact**shared:
            extra += 1
        buckets.append(min(exact + extra, num_buckets - 1))
    return buckets


@keras.saving.register_keras_serializable(package="attention_zoo")
class T5RelativePositions(Positions):
    """Learned bias for each head and bucket of distances: `score(i, j) + b[n, bucket(j − i)]`.

    Small distances have a bucket each, larger ones share buckets that grow with the logarithm of the distance, and all
    distances from `max_distance` on share the last one. The paper does not divide dot products by √d, and shares the
    biases between all layers: for that, pass one object to all of them, which a `.keras` file preserves.

    Args:
        num_buckets: Number of buckets, at least 2; if bidirectional, even and at least 4, half of them for each side.
        max_distance: Distance from which on all distances share a bucket; it must exceed the number of distances with a
            bucket each (half the buckets of a side).
        bidirectional: Whether keys after the query have separate buckets. Otherwise they count as distance 0, which is
            correct under a causal mask.
        initializer: Initializer of the biases.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import T5RelativePositions
        >>> positions = T5RelativePositions(initializer="ones")
        >>> positions.build_for_attention(num_heads=2, key_dim=4, value_dim=4, query_dim=8, memory_dim=8)
        >>> positions.bias(query_positions=[3, 4, 5], key_positions=[0, 1, 2, 3, 4, 5]).shape
        TensorShape([2, 3, 6])

    Reference:
        Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
        section 2.1, https://arxiv.org/abs/1910.10683
    """

    saved_options = ("num_buckets", "max_distance", "bidirectional", "initializer")
    needs = ("num_heads",)

    def __init__(self, num_buckets=32, max_distance=128, bidirectional=True, initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        sides = 2 if bidirectional else 1
        if not isinstance(num_buckets, numbers.Integral) or num_buckets < 2 * sides or num_buckets % sides:
            least = "an even integer of at least 4" if bidirectional else "an integer of at least 2"
            raise ValueError(f"`num_buckets` must be {least}. Received: num_buckets={num_buckets}.")
        exact = num_buckets // sides // 2
        if not isinstance(max_distance, numbers.Integral) or max_distance <= exact:
            raise ValueError(
                f"`max_distance` must be an integer above {exact} with {num_buckets} buckets. "
                f"Received: max_distance={max_distance}."
            )
        self.num_buckets = int(num_buckets)
        self.max_distance = int(max_distance)
        self.bidirectional = bidirectional
        self.initializer = keras.initializers.get(initializer)
        self._buckets = self._bucket_table()

    def _bucket_table(self):
        """Returns the bucket of each distance −max_distance … max_distance; keys after the query are positive."""
        if not self.bidirectional:
            before = distance_buckets(self.num_buckets, self.max_distance)
            return (*reversed(before), *(0 for _ in before[1:]))
        side = self.num_buckets // 2
        before = distance_buckets(side, self.max_distance)
        return (*reversed(before), *(side + bucket for bucket in before[1:]))

    def create_weights(self, num_heads):
        # In float32 under any policy, like all terms of the scores.
        self.embeddings = self.add_weight(
            name="embeddings", shape=(num_heads, self.num_buckets), initializer=self.initializer, autocast=False
        )

    def buckets(self, query_positions, key_positions):
        """Returns the bucket of each pair, int32 [T, S] from [T] and [S]."""
        steps = ops.clip(distances(query_positions, key_positions), -self.max_distance, self.max_distance)
        return take(ops.convert_to_tensor(self._buckets, "int32"), steps + self.max_distance)

    @promises(PAIRWISE)
    def bias(self, query_positions, key_positions):
        return take(self.embeddings, self.buckets(query_positions, key_positions), axis=1)  # [N, T, S]
