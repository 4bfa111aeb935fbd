"""What positions of all kinds have in common."""

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.contract import compiled, gradients, random_array, randomize, to_numpy
from support.layers.positions import (
    KEY_POSITIONS,
    POSITIONS,
    QUERY_POSITIONS,
    RELATIVE,
    build_positions,
    every_kind,
    int_tensor,
    pair_terms,
)

from zoo import layers
from zoo.layers import (
    LearnedPositions,
    RotaryPositions,
    ShawRelativePositions,
    SinusoidalPositions,
    T5RelativePositions,
)
from zoo.layers.positions.base import Positions


@every_kind
def test_rows_of_some_queries_are_rows_of_the_whole(make):
    positions = build_positions(make())
    query, weights = random_array((2, 7, 11, 19), 1), random_array((2, 7, 11, 13), 2)
    inputs = ops.convert_to_tensor(random_array((2, 11, 22), 3))
    places, keys = np.arange(2, 13, dtype="int32"), np.arange(13, dtype="int32")
    whole = {name: to_numpy(term) for name, term in pair_terms(positions, query, weights, places, keys).items()}
    whole |= {"rotate": to_numpy(positions.rotate(query, 2)), "encode": to_numpy(positions.encode(inputs, 2))}

    def rows(query, weights, inputs, first):
        places = ops.arange(3, dtype="int32") + first
        terms = pair_terms(positions, query, weights, places, int_tensor(keys))
        return {**terms, "rotate": positions.rotate(query, first), "encode": positions.encode(inputs, first)}

    function = compiled(rows, False)
    for start in (0, 3, 8):
        cut = slice(start, start + 3)
        for name, term in function(query[:, :, cut], weights[:, :, cut], inputs[:, cut], int_tensor(2 + start)).items():
            np.testing.assert_allclose(to_numpy(term), whole[name][..., cut, :], atol=2e-6, err_msg=name)


@pytest.mark.parametrize("name", RELATIVE)
def test_relative_terms_depend_on_the_distance_alone(name):
    positions = build_positions(POSITIONS[name]())
    query, weights = random_array((2, 7, 3, 19), 1), random_array((2, 7, 3, 5), 2)
    here, there = (pair_terms(positions, query, weights, QUERY_POSITIONS + n, KEY_POSITIONS + n) for n in (0, 1000))
    assert here
    for term, reference in zip(there.values(), here.values(), strict=True):
        np.testing.assert_array_equal(to_numpy(term), to_numpy(reference))


@every_kind
def test_fused_kernels_learn_whether_there_are_terms(make):
    positions, query = build_positions(make()), random_array((2, 7, 3, 19), 1)
    terms = pair_terms(positions, query, random_array((2, 7, 3, 5), 2), QUERY_POSITIONS, KEY_POSITIONS)
    assert bool(terms) == positions.acts_on_scores
    if terms:
        assert positions.encode(query) is query and positions.rotate(query) is query


def test_the_base_class_changes_nothing():
    positions, inputs = Positions(), random_array((2, 7, 3, 19), 1)
    assert positions.encode(inputs) is inputs and positions.rotate(inputs) is inputs
    assert positions.encoded_size(5) == 5 and not positions.acts_on_scores
    assert not pair_terms(positions, inputs, inputs, QUERY_POSITIONS, KEY_POSITIONS)


@every_kind
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_results_keep_the_dtype_and_biases_are_float32(make, policy):
    positions = build_positions(make(dtype=policy))
    half = positions.compute_dtype
    query, weights, inputs = (
        ops.convert_to_tensor(random_array(shape, 1), half) for shape in ((2, 7, 3, 19), (2, 7, 3, 5), (2, 3, 22))
    )
    terms = pair_terms(positions, query, weights, QUERY_POSITIONS, KEY_POSITIONS)
    terms |= {"rotate": positions.rotate(query), "encode": positions.encode(inputs)}
    for name, term in terms.items():
        assert keras.backend.standardize_dtype(term.dtype) == ("float32" if name == "bias" else half), name


@every_kind
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


@pytest.mark.nightly
@every_kind
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


@every_kind
def test_weights_are_named_after_the_object(make):
    attention = layers.MultiHeadAttention(7, 4, positions=make(name="places"), name="attention")
    attention(*(random_array((2, 5, 22), 1),) * 2)
    assert all(weight.path.startswith("attention/places/") for weight in attention.positions.weights)


@every_kind
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


@every_kind
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


@every_kind
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
    positions = POSITIONS[name]()
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
