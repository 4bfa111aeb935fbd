"""Relative positions against loops written from their formulas, and examples computed by hand."""

import math

import keras
import numpy as np
from keras import ops
from support.layers.contract import (
    gradients,
    random_array,
    to_numpy,
)
from support.layers.positions import (
    KEY_POSITIONS,
    QUERY_POSITIONS,
    build_positions,
)

from zoo.layers import (
    ALiBiPositions,
    ShawRelativePositions,
    T5RelativePositions,
)
from zoo.layers.positions.relative import distance_buckets, head_slopes


def test_slopes_by_hand():
    assert head_slopes(1) == [2**-8] and head_slopes(2) == [2**-4, 2**-8]
    assert head_slopes(3) == [2**-4, 2**-8, 2**-2]
    assert head_slopes(4) == [2**-2, 2**-4, 2**-6, 2**-8]
    assert head_slopes(6) == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    assert head_slopes(8) == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


def test_slopes_of_any_number_of_heads():
    for num_heads in range(1, 70):
        slopes = head_slopes(num_heads)
        assert len(set(slopes)) == num_heads and all(2**-8 <= slope < 1 for slope in slopes)
    for num_heads in (1, 2, 4, 8, 16, 32, 64):
        # Start and ratio are 2^(−8/N).
        expected = [(2 ** (-8 / num_heads)) ** n for n in range(1, num_heads + 1)]
        np.testing.assert_allclose(head_slopes(num_heads), expected)


def test_linear_biases():
    bias = to_numpy(build_positions(ALiBiPositions()).bias(QUERY_POSITIONS, KEY_POSITIONS))
    assert bias.shape == (7, 3, 5)
    for n, t, s in np.ndindex(7, 3, 5):
        expected = -head_slopes(7)[n] * abs(int(QUERY_POSITIONS[t]) - int(KEY_POSITIONS[s]))
        np.testing.assert_allclose(bias[n, t, s], expected, rtol=1e-6)


def test_relative_vectors():
    query, weights = random_array((2, 7, 3, 19), 1), random_array((2, 7, 3, 5), 2)
    places = QUERY_POSITIONS, KEY_POSITIONS
    for max_distance in (1, 6, 31):
        positions = build_positions(ShawRelativePositions(max_distance))
        keys, values = to_numpy(positions.key_embeddings), to_numpy(positions.value_embeddings)
        scores, sums = to_numpy(positions.scores(query, *places)), to_numpy(positions.values(weights, *places))
        assert scores.shape == (2, 7, 3, 5) and sums.shape == (2, 7, 3, 23)
        steps = np.clip(KEY_POSITIONS[None] - QUERY_POSITIONS[:, None], -max_distance, max_distance)
        rows = steps + max_distance
        for b, n, t in np.ndindex(2, 7, 3):
            np.testing.assert_allclose(scores[b, n, t], keys[rows[t]] @ query[b, n, t] / math.sqrt(19), atol=2e-6)
            np.testing.assert_allclose(sums[b, n, t], weights[b, n, t] @ values[rows[t]], atol=2e-6)


def test_relative_vectors_by_hand():
    positions = ShawRelativePositions(max_distance=1)
    positions.build_for_attention(num_heads=1, key_dim=4, value_dim=1, query_dim=4, memory_dim=4)
    # Keys before, at and behind the query gain (1, 0, 0, 0), nothing and (0, 1, 0, 0); values gain 1, 10 and 100.
    keys = np.zeros((3, 4), "float32")
    keys[0, 0] = keys[2, 1] = 1.0
    positions.set_weights([keys, np.array([[1.0], [10.0], [100.0]], "float32")])
    query = np.array([[[[2.0, 6.0, 5.0, 5.0]]]], "float32")  # divided by √4
    scores = to_numpy(positions.scores(query, [2], [0, 1, 2, 3, 4]))
    np.testing.assert_allclose(scores[0, 0, 0], [1.0, 1.0, 0.0, 3.0, 3.0])
    weights = np.array([[[[0.1, 0.2, 0.3, 0.4, 0.0]]]], "float32")
    np.testing.assert_allclose(to_numpy(positions.values(weights, [2], [0, 1, 2, 3, 4])), [[[[43.3]]]], rtol=1e-6)


def test_relative_vectors_of_keys_alone():
    positions = build_positions(ShawRelativePositions(2, use_values=False))
    assert len(positions.weights) == 1
    assert positions.values(random_array((2, 7, 3, 5), 2), QUERY_POSITIONS, KEY_POSITIONS) is None


def test_many_equal_distances_add_up_in_low_precision():
    """A bfloat16 sum of 4096 equal weights would stop growing at 256 of them."""
    positions = ShawRelativePositions(1, initializer="ones", dtype="mixed_bfloat16")
    positions.build_for_attention(num_heads=1, key_dim=1, value_dim=1, query_dim=1, memory_dim=1)
    weights = ops.full((1, 1, 1, 4096), 2.0**-12, dtype="bfloat16")
    total = positions.values(weights, [5000], np.arange(4096))
    assert keras.backend.standardize_dtype(total.dtype) == "bfloat16"
    assert to_numpy(total) == 1.0
    query = keras.Variable(np.ones((1, 1, 1, 1)), dtype="bfloat16")

    def loss():
        return ops.sum(ops.cast(positions.scores(query, [5000], np.arange(4096)), "float32"))

    assert np.float32(gradients(loss, [query])[0]) == 4096.0


def _bucket(step, num_buckets, max_distance, bidirectional):
    """Returns the bucket of a key `step` places behind the query (negative: before it), from the definition."""
    first = 0
    if bidirectional:
        num_buckets //= 2
        first = num_buckets if step > 0 else 0
        distance = abs(step)
    else:
        distance = max(0, -step)
    exact = num_buckets // 2
    if distance < exact:
        return first + distance
    # Just above the logarithm: where it is a whole number, it may come out just below.
    share = math.log(distance / exact) / math.log(max_distance / exact) + 1e-12
    return first + min(num_buckets - 1, exact + math.floor(share * (num_buckets - exact)))


def test_buckets():
    places = np.arange(-700, 701, dtype="int32")
    for num_buckets, max_distance in ((32, 128), (4, 2), (6, 3), (14, 91), (64, 1000)):
        for bidirectional in (True, False):
            largest = max_distance if bidirectional else 2 * max_distance  # half the buckets are exact
            positions = T5RelativePositions(num_buckets, largest, bidirectional)
            buckets = ops.convert_to_numpy(positions.buckets([0], places))[0]
            expected = [_bucket(int(place), num_buckets, largest, bidirectional) for place in places]
            assert buckets.tolist() == expected


def test_buckets_by_hand():
    # Sixteen for a side, eight of them exact; the others start at 8 · 16^(n/8) = 8, 11.3, 16, 22.6, 32, 45.3, 64, 90.5.
    buckets = distance_buckets(16, 128)
    starts = [distance for distance in range(1, 129) if buckets[distance] != buckets[distance - 1]]
    assert starts == [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
    both = ops.convert_to_numpy(T5RelativePositions().buckets([100], [100, 99, 101, 92, 108, 0, 400]))[0]
    assert both.tolist() == [0, 1, 17, 8, 24, 15, 31]
    causal = ops.convert_to_numpy(T5RelativePositions(bidirectional=False).buckets([200], [200, 185, 201, 184, 0]))[0]
    assert causal.tolist() == [0, 15, 0, 16, 31]


def test_bucket_biases():
    for bidirectional in (True, False):
        positions = build_positions(T5RelativePositions(14, 91, bidirectional, dtype="mixed_bfloat16"))
        table = to_numpy(positions.embeddings)
        bias = positions.bias(QUERY_POSITIONS, KEY_POSITIONS)
        assert keras.backend.standardize_dtype(bias.dtype) == "float32"
        for n, t, s in np.ndindex(7, 3, 5):
            bucket = _bucket(int(KEY_POSITIONS[s]) - int(QUERY_POSITIONS[t]), 14, 91, bidirectional)
            assert to_numpy(bias)[n, t, s] == table[n, bucket]
