"""Relative positions as learned biases for buckets of distances."""

import numbers

import keras
from keras import ops

from zoo.layers.core.overrides import PAIRWISE, promises
from zoo.layers.positions.base import Positions, distances


def distance_buckets(num_buckets, max_distance):
    """Returns the bucket of each distance 0 … `max_distance`, of K ≥ 2 buckets.

    With E half the buckets, each distance d below E has its own bucket; the others share the buckets E … K − 1, which
    grow by a constant factor up to `max_distance`: `E + ⌊log(d/E) / log(max_distance/E) · (K − E)⌋`, at most K − 1.
    """
    exact = num_buckets // 2
    shared = num_buckets - exact
    buckets, extra = list(range(exact)), 0
    for distance in range(exact, max_distance + 1):
        # In integers, since logarithms may round down at the very border of two buckets.
        while distance**shared * exact ** (extra + 1) >= max_distance ** (extra + 1) * exact**shared:
            extra += 1
        buckets.append(min(exact + extra, num_buckets - 1))
    return buckets


@keras.saving.register_keras_serializable(package="attention_zoo")
class T5RelativePositions(Positions):
    """Learned bias for each head and bucket of distances: `score(i, j) + b[n, bucket(j − i)]`.

    Near distances have a bucket each, farther ones share buckets that grow with the logarithm of the distance, and all
    from `max_distance` on share the last one. The paper does not divide dot products by √d, and shares the biases
    between all layers; for that, pass one object to all of them, which a `.keras` file preserves.

    Args:
        num_buckets: Number of buckets, at least 2; bidirectional at least 4 and even, half of them for each side.
        max_distance: Distance from which on all share a bucket; larger than the number of distances with one each
            (half the buckets of a side).
        bidirectional: Whether keys after the query have separate buckets. Otherwise they count as distance 0, which is
            right under a causal mask.
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
        # In float32 under any policy, like all that is added to the scores before the softmax.
        self.embeddings = self.add_weight(
            name="embeddings", shape=(num_heads, self.num_buckets), initializer=self.initializer, autocast=False
        )

    def buckets(self, query_positions, key_positions):
        """Returns the bucket of each pair, int32 [T, S] from [T] and [S]."""
        steps = ops.clip(distances(query_positions, key_positions), -self.max_distance, self.max_distance)
        return ops.take(ops.convert_to_tensor(self._buckets, "int32"), steps + self.max_distance, axis=0)

    @promises(PAIRWISE)
    def bias(self, query_positions, key_positions):
        return ops.take(self.embeddings, self.buckets(query_positions, key_positions), axis=1)  # [N, T, S]
