"""Positions, each against loops written from its formula and an example worked out by hand."""

import math

import keras
import numpy as np
import pytest
from contract import compiled, gradients, random_array, randomize, to_numpy
from keras import ops

from zoo import layers
from zoo.layers import (
    ALiBiPositions,
    LearnedPositions,
    RotaryPositions,
    ShawRelativePositions,
    SinusoidalPositions,
    T5RelativePositions,
)
from zoo.layers.positions.absolute import AbsolutePositions
from zoo.layers.positions.alibi import head_slopes
from zoo.layers.positions.base import Positions
from zoo.layers.positions.t5 import distance_buckets

SIZES = {"num_heads": 7, "key_dim": 19, "value_dim": 23, "query_dim": 22, "memory_dim": 22}
# Positions in no order, some twice and some before the start: nothing may rest on their being consecutive.
QUERY_POSITIONS, KEY_POSITIONS = np.array([4, -3, 11], "int32"), np.array([0, 9, 4, 4, -7], "int32")


def _built(positions, **sizes):
    positions.build_for_attention(**{**SIZES, **sizes})
    return randomize(positions)


def _tensor(value):
    return ops.convert_to_tensor(value, "int32")


# Absolute positions.


def _sinusoids(length, size, wavelength=10000.0, start=0):
    table = np.zeros((length, size))
    for position in range(length):
        for pair in range(size // 2):
            angle = (start + position) / wavelength ** (2 * pair / size)
            table[position, 2 * pair], table[position, 2 * pair + 1] = np.sin(angle), np.cos(angle)
    return table


@pytest.mark.parametrize("start", [0, 3, 4001])
@pytest.mark.parametrize("wavelength", [97.0, 10000.0])
def test_sinusoids(start, wavelength):
    inputs = random_array((2, 5, 22), 1)
    output = to_numpy(SinusoidalPositions(wavelength)(inputs, start_index=start))
    expected = inputs + _sinusoids(5, 22, wavelength, start)
    # float32 angles of a few thousand are good to some 1e-4.
    np.testing.assert_allclose(output, expected, atol=1e-6 if start < 10 else 1e-3)


def test_sinusoids_by_hand():
    # D = 2 has one frequency, 1: sin p and cos p.
    output = to_numpy(SinusoidalPositions()(np.array([[[1.0, 2.0], [3.0, 4.0]]], "float32")))
    np.testing.assert_allclose(output, [[[1.0, 3.0], [3.0 + 0.841471, 4.0 + 0.540302]]], rtol=1e-6)


def test_distance_alone_decides_the_product_of_two_sinusoids():
    table = to_numpy(SinusoidalPositions()(np.zeros((1, 31, 26), "float32")))[0]
    products = table @ table.T
    for distance in (0, 1, 13):
        diagonal = np.diagonal(products, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-5)


def test_low_precision_tells_far_positions_apart():
    output = to_numpy(SinusoidalPositions(dtype="mixed_bfloat16")(np.zeros((1, 2, 8), "float32"), start_index=257))
    np.testing.assert_allclose(output[0], _sinusoids(2, 8, start=257), atol=4e-3)


def test_learned_positions():
    layer = LearnedPositions(11)
    layer.build((2, 5, 6))
    table, inputs = to_numpy(randomize(layer).embeddings), random_array((2, 5, 6), 1)
    for start in (0, 3, 6):
        output = to_numpy(layer(inputs, start_index=start))
        for b, t in np.ndindex(2, 5):
            np.testing.assert_allclose(output[b, t], inputs[b, t] + table[start + t], rtol=1e-6)


@pytest.mark.parametrize("make", [LearnedPositions, lambda _, **options: SinusoidalPositions(**options)])
def test_concatenated_positions(make):
    layer, inputs = make(11, concatenate=True, size=6), random_array((2, 5, 4), 1)
    output = to_numpy(layer(inputs, start_index=3))
    np.testing.assert_array_equal(output[:, :, :4], inputs)
    encodings = _sinusoids(5, 6, start=3) if not layer.weights else to_numpy(layer.embeddings)[3:8]
    for sequence in output:
        np.testing.assert_allclose(sequence[:, 4:], encodings, atol=1e-6)
    # By default as many as there are features.
    alike = make(11, concatenate=True)
    assert alike(inputs).shape == (2, 5, 8) and alike.encoded_size(4) == 8 and layer.encoded_size(4) == 10


def test_learned_positions_by_hand():
    added, beside = LearnedPositions(3), LearnedPositions(3, concatenate=True, size=1)
    for layer, table in ((added, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), (beside, [[7.0], [8.0], [9.0]])):
        layer.build((1, 2, 2))
        layer.set_weights([np.array(table, "float32")])
    inputs = np.array([[[10.0, 20.0], [30.0, 40.0]]], "float32")
    np.testing.assert_array_equal(to_numpy(added(inputs, start_index=1)), [[[13, 24], [35, 46]]])
    np.testing.assert_array_equal(to_numpy(beside(inputs, start_index=1)), [[[10, 20, 8], [30, 40, 9]]])


@pytest.mark.parametrize("make", [lambda **options: LearnedPositions(7, **options), SinusoidalPositions])
@pytest.mark.parametrize("options", [{}, {"concatenate": True, "size": 4}])
def test_steps_are_slices_of_the_whole(make, options):
    layer, inputs = make(**options), random_array((2, 7, 10), 2)
    whole = to_numpy(layer(inputs))
    for position in range(7):
        step = layer(inputs[:, position : position + 1], start_index=_tensor(position))
        np.testing.assert_allclose(to_numpy(step)[:, 0], whole[:, position], atol=5e-7)


def test_behind_the_learned_table_its_last_row_goes_on():
    layer = LearnedPositions(5)
    layer.build((2, 3, 4))
    table, inputs = to_numpy(randomize(layer).embeddings), np.zeros((1, 3, 4), "float32")
    output = to_numpy(compiled(lambda inputs, start: layer(inputs, start_index=start), False)(inputs, _tensor(3)))
    np.testing.assert_allclose(output[0], table[[3, 4, 4]], rtol=1e-6)
    np.testing.assert_allclose(to_numpy(layer(inputs, start_index=_tensor(-2)))[0], table[[0, 0, 0]], rtol=1e-6)


def test_more_queries_than_keys_stand_before_the_learned_table_unless_they_begin_at_its_start():
    inputs = random_array((1, 5, 6), 1)
    attention = layers.MultiHeadAttention(2, 3, positions=LearnedPositions(7))
    attention.build(inputs.shape, inputs.shape)
    randomize(attention)
    equal = np.repeat(inputs[:, :1], 5, axis=1)
    # Places −2 … 2: the first three have the first row of the table, and equal queries equal outputs.
    output = to_numpy(attention(equal, inputs[:, :3]))[0]
    np.testing.assert_allclose(output[1:3], output[[0, 0]], atol=1e-6)
    assert np.abs(output[3] - output[2]).max() > 1e-3
    output = to_numpy(attention(equal, inputs[:, :3], start_index=0))[0]
    assert all(np.abs(output[t + 1] - output[t]).max() > 1e-3 for t in range(4))


def test_sinusoids_and_rotations_go_on_before_the_start():
    inputs, heads = np.zeros((1, 5, 22), "float32"), random_array((1, 1, 5, 8), 1)
    np.testing.assert_allclose(
        to_numpy(SinusoidalPositions()(inputs, start_index=-3))[0], _sinusoids(5, 22, start=-3), atol=1e-6
    )
    turned = to_numpy(RotaryPositions()(heads, start_index=-3))
    for t in range(5):
        np.testing.assert_allclose(turned[0, 0, t], _rotate(heads[0, 0, t], t - 3, 8, 10000.0), atol=1e-6)


# Rotary positions.


def _rotate(head, position, size, wavelength):
    """Returns one head [H] with its first `size` features turned: the matrix of equation 15, pair after pair."""
    turned = head.astype("float64").copy()
    for pair in range(size // 2):
        angle = position * wavelength ** (-2 * pair / size)
        matrix = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        turned[2 * pair : 2 * pair + 2] = matrix @ head[2 * pair : 2 * pair + 2]
    return turned


@pytest.mark.parametrize(("fraction", "size"), [(1.0, 18), (0.5, 8), (0.25, 4), (0.11, 2)])
@pytest.mark.parametrize("start", [0, 3, 1001])
def test_rotary(fraction, size, start):
    heads = random_array((2, 7, 3, 19), 1)
    output = to_numpy(RotaryPositions(97.0, fraction)(heads, start_index=start))
    for b, n, t in np.ndindex(2, 7, 3):
        expected = _rotate(heads[b, n, t], start + t, size, 97.0)
        np.testing.assert_allclose(output[b, n, t], expected, atol=1e-6 if start < 10 else 2e-4)


def test_rotary_by_hand():
    # The first pair turns by 1 for each position, the second by 1 / √w = 1/4: cosines and sines of those.
    heads = np.array([[[[1.0, 0.0, 1.0, 0.0]] * 2]], "float32")
    output = to_numpy(RotaryPositions(max_wavelength=16.0)(heads, start_index=0))[0, 0]
    np.testing.assert_allclose(output[0], [1, 0, 1, 0], atol=1e-7)
    np.testing.assert_allclose(output[1], [0.540302, 0.841471, 0.968912, 0.247404], atol=1e-6)


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_rotary_products_depend_on_the_distance_alone(fraction):
    positions, query, key = RotaryPositions(fraction=fraction), *random_array((2, 1, 1, 1, 20), 1)
    products = {}
    for first, second in [(0, 0), (3, 3), (5, 0), (12, 7), (105, 100), (0, 5), (7, 12)]:
        turned = to_numpy(positions.rotate(query, first)), to_numpy(positions.rotate(key, second))
        products.setdefault(first - second, []).append(np.sum(turned[0] * turned[1]))
    for same in products.values():
        np.testing.assert_allclose(same, same[0], atol=1e-5)
    assert abs(products[5][0] - products[-5][0]) > 1e-2 and abs(products[5][0] - products[0][0]) > 1e-2


def test_rotary_keeps_lengths_and_tells_far_positions_apart_in_low_precision():
    heads, layer = random_array((1, 1, 2, 8), 1), RotaryPositions(dtype="mixed_bfloat16")
    output = to_numpy(layer(heads, start_index=_tensor(257)))
    np.testing.assert_allclose((output**2).sum(-1), (heads**2).sum(-1), rtol=2e-2)
    for t in range(2):
        np.testing.assert_allclose(output[0, 0, t], _rotate(heads[0, 0, t], 257 + t, 8, 10000.0), atol=1e-2)


# Linear biases.


@pytest.mark.parametrize(
    ("num_heads", "expected"),
    [
        (1, [2**-8]),
        (2, [2**-4, 2**-8]),
        (3, [2**-4, 2**-8, 2**-2]),
        (4, [2**-2, 2**-4, 2**-6, 2**-8]),
        (6, [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]),
        (8, [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]),
    ],
)
def test_slopes_by_hand(num_heads, expected):
    assert head_slopes(num_heads) == expected


def test_slopes_of_any_number_of_heads():
    for num_heads in range(1, 70):
        slopes = head_slopes(num_heads)
        assert len(set(slopes)) == num_heads and all(2**-8 <= slope < 1 for slope in slopes)
    for num_heads in (1, 2, 4, 8, 16, 32, 64):
        # Start and ratio are 2^(−8/N).
        expected = [(2 ** (-8 / num_heads)) ** n for n in range(1, num_heads + 1)]
        np.testing.assert_allclose(head_slopes(num_heads), expected)


def test_linear_biases():
    bias = to_numpy(_built(ALiBiPositions()).bias(QUERY_POSITIONS, KEY_POSITIONS))
    assert bias.shape == (7, 3, 5)
    for n, t, s in np.ndindex(7, 3, 5):
        expected = -head_slopes(7)[n] * abs(int(QUERY_POSITIONS[t]) - int(KEY_POSITIONS[s]))
        np.testing.assert_allclose(bias[n, t, s], expected, rtol=1e-6)


# Relative vectors.


def _clipped(step, largest):
    return max(-largest, min(largest, int(step)))


@pytest.mark.parametrize("max_distance", [1, 2, 6, 31])
def test_relative_vectors(max_distance):
    positions = _built(ShawRelativePositions(max_distance))
    keys, values = to_numpy(positions.key_embeddings), to_numpy(positions.value_embeddings)
    query, weights = random_array((2, 7, 3, 19), 1), random_array((2, 7, 3, 5), 2)
    places = QUERY_POSITIONS, KEY_POSITIONS
    scores, sums = to_numpy(positions.scores(query, *places)), to_numpy(positions.values(weights, *places))
    assert scores.shape == (2, 7, 3, 5) and sums.shape == (2, 7, 3, 23)
    for b, n, t in np.ndindex(2, 7, 3):
        total = np.zeros(23)
        for s in range(5):
            row = _clipped(KEY_POSITIONS[s] - QUERY_POSITIONS[t], max_distance) + max_distance
            product = sum(q * a for q, a in zip(query[b, n, t], keys[row], strict=True)) / math.sqrt(19)
            np.testing.assert_allclose(scores[b, n, t, s], product, atol=2e-6)
            total += weights[b, n, t, s] * values[row]
        np.testing.assert_allclose(sums[b, n, t], total, atol=2e-6)


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
    positions = _built(ShawRelativePositions(2, use_values=False))
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


# Buckets of distances.


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


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (4, 2), (6, 3), (14, 91), (64, 1000)])
def test_buckets(num_buckets, max_distance, bidirectional):
    if not bidirectional:
        max_distance *= 2  # half the buckets are exact
    positions = T5RelativePositions(num_buckets, max_distance, bidirectional)
    places = np.arange(-700, 701, dtype="int32")
    buckets = ops.convert_to_numpy(positions.buckets([0], places))[0]
    expected = [_bucket(int(place), num_buckets, max_distance, bidirectional) for place in places]
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


@pytest.mark.parametrize("bidirectional", [True, False])
def test_bucket_biases(bidirectional):
    positions = _built(T5RelativePositions(14, 91, bidirectional, dtype="mixed_bfloat16"))
    table = to_numpy(positions.embeddings)
    bias = positions.bias(QUERY_POSITIONS, KEY_POSITIONS)
    assert keras.backend.standardize_dtype(bias.dtype) == "float32"
    for n, t, s in np.ndindex(7, 3, 5):
        bucket = _bucket(int(KEY_POSITIONS[s]) - int(QUERY_POSITIONS[t]), 14, 91, bidirectional)
        assert to_numpy(bias)[n, t, s] == table[n, bucket]


# What all have in common.

EVERY = {
    "sinusoidal": lambda **options: SinusoidalPositions(**options),
    "learned": lambda **options: LearnedPositions(41, **options),
    "rotary": lambda **options: RotaryPositions(fraction=0.5, **options),
    "alibi": lambda **options: ALiBiPositions(**options),
    "shaw": lambda **options: ShawRelativePositions(3, **options),
    "t5": lambda **options: T5RelativePositions(8, 11, **options),
}
every = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)
RELATIVE = ("alibi", "shaw", "t5")


def _terms(positions, query, weights, query_positions, key_positions):
    """Returns the terms of all pairs, by name."""
    terms = {
        "bias": positions.bias(query_positions, key_positions),
        "scores": positions.scores(query, query_positions, key_positions),
        "values": positions.values(weights, query_positions, key_positions),
    }
    return {name: term for name, term in terms.items() if term is not None}


@every
def test_rows_of_some_queries_are_rows_of_the_whole(make):
    positions = _built(make())
    query, weights = random_array((2, 7, 11, 19), 1), random_array((2, 7, 11, 13), 2)
    inputs = ops.convert_to_tensor(random_array((2, 11, 22), 3))
    places, keys = np.arange(2, 13, dtype="int32"), np.arange(13, dtype="int32")
    whole = {name: to_numpy(term) for name, term in _terms(positions, query, weights, places, keys).items()}
    whole |= {"rotate": to_numpy(positions.rotate(query, 2)), "encode": to_numpy(positions.encode(inputs, 2))}

    def rows(query, weights, inputs, first):
        places = ops.arange(3, dtype="int32") + first
        terms = _terms(positions, query, weights, places, _tensor(keys))
        return {**terms, "rotate": positions.rotate(query, first), "encode": positions.encode(inputs, first)}

    function = compiled(rows, False)
    for start in (0, 3, 8):
        cut = slice(start, start + 3)
        for name, term in function(query[:, :, cut], weights[:, :, cut], inputs[:, cut], _tensor(2 + start)).items():
            np.testing.assert_allclose(to_numpy(term), whole[name][..., cut, :], atol=2e-6, err_msg=name)


@pytest.mark.parametrize("name", RELATIVE)
def test_relative_terms_depend_on_the_distance_alone(name):
    positions = _built(EVERY[name]())
    query, weights = random_array((2, 7, 3, 19), 1), random_array((2, 7, 3, 5), 2)
    here, there = (_terms(positions, query, weights, QUERY_POSITIONS + n, KEY_POSITIONS + n) for n in (0, 1000))
    assert here
    for term, reference in zip(there.values(), here.values(), strict=True):
        np.testing.assert_array_equal(to_numpy(term), to_numpy(reference))


@every
def test_fused_kernels_learn_whether_there_are_terms(make):
    positions, query = _built(make()), random_array((2, 7, 3, 19), 1)
    terms = _terms(positions, query, random_array((2, 7, 3, 5), 2), QUERY_POSITIONS, KEY_POSITIONS)
    assert bool(terms) == positions.acts_on_scores
    if terms:
        assert positions.encode(query) is query and positions.rotate(query) is query


def test_the_base_class_changes_nothing():
    positions, inputs = Positions(), random_array((2, 7, 3, 19), 1)
    assert positions.encode(inputs) is inputs and positions.rotate(inputs) is inputs
    assert positions.encoded_size(5) == 5 and not positions.acts_on_scores
    assert not _terms(positions, inputs, inputs, QUERY_POSITIONS, KEY_POSITIONS)


@every
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_results_keep_the_dtype_and_biases_are_float32(make, policy):
    positions = _built(make(dtype=policy))
    half = positions.compute_dtype
    query, weights, inputs = (
        ops.convert_to_tensor(random_array(shape, 1), half) for shape in ((2, 7, 3, 19), (2, 7, 3, 5), (2, 3, 22))
    )
    terms = _terms(positions, query, weights, QUERY_POSITIONS, KEY_POSITIONS)
    terms |= {"rotate": positions.rotate(query), "encode": positions.encode(inputs)}
    for name, term in terms.items():
        assert keras.backend.standardize_dtype(term.dtype) == ("float32" if name == "bias" else half), name


@every
def test_one_object_may_serve_layers_of_equal_sizes(make):
    positions, inputs = make(), random_array((2, 5, 22), 1)
    first, second = (layers.MultiHeadAttention(7, 4, positions=positions) for _ in range(2))
    first(inputs, inputs), second(inputs, inputs)
    before = list(positions.weights)
    positions.build_for_attention(7, 4, 4, 22, 22)
    assert all(new is old for new, old in zip(positions.weights, before, strict=True))
    assert {id(weight) for weight in positions.weights} <= {id(weight) for weight in second.weights}
    if positions.needs:
        with pytest.raises(ValueError, match="Attention layers of other sizes need another `Positions` object"):
            positions.build_for_attention(9, 8, 8, 18, 18)


@every
def test_layers_that_share_an_object_share_it_again_when_reloaded(make, tmp_path):
    positions, inputs = make(), keras.Input((5, 22))
    hidden = inputs
    for _ in range(2):  # one layer alone, and one inside another
        attention = layers.MultiHeadAttention(7, 4, positions=positions)
        block = layers.TransformerEncoderBlock(
            layers.MultiHeadAttention(7, 4, positions=positions), layers.FeedForward(3)
        )
        hidden = block(attention(hidden, hidden))
    model = randomize(keras.Model(inputs, hidden))
    model.save(tmp_path / "model.keras")
    reloaded = keras.saving.load_model(tmp_path / "model.keras")
    assert len(reloaded.weights) == len(model.weights)
    assert len({id(layer.positions) for layer in reloaded.layers if hasattr(layer, "positions")}) == 1
    batch = random_array((2, 5, 22), 1)
    np.testing.assert_array_equal(to_numpy(reloaded(batch)), to_numpy(model(batch)))


@every
def test_weights_are_named_after_the_object(make):
    attention = layers.MultiHeadAttention(7, 4, positions=make(name="places"), name="attention")
    attention(*(random_array((2, 5, 22), 1),) * 2)
    assert all(weight.path.startswith("attention/places/") for weight in attention.positions.weights)


@every
def test_steps_with_a_cache_are_rows_of_the_whole(make):
    attention, inputs = layers.MultiHeadAttention(7, 4, positions=make()), random_array((2, 6, 22), 1)
    attention.build(inputs.shape, inputs.shape)
    randomize(attention)
    whole = to_numpy(attention(inputs, inputs, use_causal_mask=True))
    cache = attention.create_cache(2, 9)
    parts = [slice(0, 3), slice(3, 4), slice(4, 6)]  # a prefix at once, then step by step
    for part in parts:
        output, cache = attention(inputs[:, part], inputs[:, part], cache=cache)
        np.testing.assert_allclose(to_numpy(output), whole[:, part], atol=5e-6, rtol=5e-5)


@every
def test_chunks_of_queries_and_their_gradients_agree_with_all_at_once(make):
    inputs, direction = (ops.convert_to_tensor(random_array((2, 6, 22), seed)) for seed in (1, 2))
    results, found = [], []
    for implementation in ("dense", "blockwise"):
        attention = layers.MultiHeadAttention(7, 4, positions=make(), implementation=implementation)
        attention.build(inputs.shape, inputs.shape)
        randomize(attention)

        def loss(attention=attention):
            return ops.sum(attention(inputs, inputs, use_causal_mask=True) * direction)

        results.append(to_numpy(attention(inputs, inputs, use_causal_mask=True)))
        found.append(gradients(loss, attention.trainable_variables))
    np.testing.assert_allclose(results[1], results[0], atol=5e-6, rtol=5e-5)
    for blockwise, dense in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(blockwise, dense, atol=2e-4, rtol=1e-4)


@every
def test_attention_without_positions_knows_no_order_and_with_them_it_does(make):
    inputs, order = random_array((2, 5, 22), 1), np.array([3, 0, 4, 1, 2])
    for positions in (None, make()):
        attention = layers.MultiHeadAttention(7, 4, positions=positions)
        attention.build(inputs.shape, inputs.shape)
        randomize(attention)
        plain, mixed = (to_numpy(attention(inputs, values)) for values in (inputs, inputs[:, order]))
        assert np.allclose(plain, mixed, atol=1e-5) == (positions is None)


@pytest.mark.parametrize("name", RELATIVE)
def test_relative_positions_say_where_they_work(name):
    positions = EVERY[name]()
    with pytest.raises(NotImplementedError, match="works inside an attention layer, not by itself: `MultiHeadAtt"):
        positions.call(np.zeros((2, 3, 4), "float32"))


def test_a_position_of_ones_own_needs_one_method_only():
    class Neighbours(Positions):
        def bias(self, query_positions, key_positions):
            near = ops.abs(query_positions[:, None] - key_positions[None]) <= 1
            return ops.where(near, 0.0, -1e9)[None]

    attention, inputs = layers.MultiHeadAttention(2, 3, positions=Neighbours()), random_array((2, 5, 6), 1)
    _, weights = attention(inputs, inputs, return_attention_scores=True)
    near = np.abs(np.subtract.outer(np.arange(5), np.arange(5))) <= 1
    assert np.array_equal(to_numpy(weights) > 0, np.broadcast_to(near, (2, 2, 5, 5)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SinusoidalPositions(0), "`max_wavelength` must be positive. Received: max_wavelength=0."),
        (
            lambda: SinusoidalPositions()(np.zeros((2, 3, 5), "float32")),
            "The last axis must be even; otherwise give an even `size` with `concatenate=True`. "
            "Received: a last axis of 5.",
        ),
        (
            lambda: SinusoidalPositions().build_for_attention(2, 4, 4, 8, 7),
            "The last axis must be even; otherwise give an even `size` with `concatenate=True`. "
            "Received: a last axis of 7.",
        ),
        (lambda: SinusoidalPositions(concatenate=True, size=5), "`size` must be even. Received: size=5."),
        (
            lambda: SinusoidalPositions(size=4),
            "`size` needs `concatenate=True`: added encodings have the size of the inputs. Received: size=4.",
        ),
        (
            lambda: LearnedPositions(7, concatenate=True, size=0),
            "`size` must be a positive integer. Received: size=0.",
        ),
        (lambda: LearnedPositions(0), "`max_length` must be a positive integer. Received: max_length=0."),
        (
            lambda: LearnedPositions(7).build_for_attention(2, 4, 4, 8, 6),
            "Queries and keys of different sizes need `concatenate=True` and a `size`. "
            "Received: query_dim=8, memory_dim=6.",
        ),
        (lambda: RotaryPositions(-1.0), "`max_wavelength` must be positive. Received: max_wavelength=-1.0."),
        (lambda: RotaryPositions(fraction=0), "`fraction` must be in (0, 1]. Received: fraction=0."),
        (
            lambda: RotaryPositions(fraction=0.25)(np.zeros((2, 3, 5, 7), "float32")),
            "At least two features of a head must be rotated. Received: fraction=0.25, heads of size 7.",
        ),
        (lambda: ShawRelativePositions(0), "`max_distance` must be a positive integer. Received: max_distance=0."),
        (
            lambda: T5RelativePositions(7),
            "`num_buckets` must be an even integer of at least 4. Received: num_buckets=7.",
        ),
        (
            lambda: T5RelativePositions(1, bidirectional=False),
            "`num_buckets` must be an integer of at least 2. Received: num_buckets=1.",
        ),
        (
            lambda: T5RelativePositions(32, 8),
            "`max_distance` must be an integer above 8 with 32 buckets. Received: max_distance=8.",
        ),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError) as error:
        make()
    assert message in str(error.value)


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="PyTorch knows no length beforehand")
def test_a_known_excess_over_the_learned_table_is_an_error():
    layer = LearnedPositions(7)
    assert layer(np.zeros((2, 5, 4), "float32"), start_index=2).shape == (2, 5, 4)
    message = r"`max_length` must be at least 8 .* max_length=7, start_index=3, inputs.shape=\(2, 5, 4\)."
    with pytest.raises(ValueError, match=message):
        layer(np.zeros((2, 5, 4), "float32"), start_index=3)


def test_base_class_says_what_to_override():
    with pytest.raises(NotImplementedError, match="AbsolutePositions must override `encodings`"):
        AbsolutePositions().encodings(None, 2)
