"""What positions of all kinds have in common."""

import re

import keras
import numpy as np
import pytest
from keras import ops
from support.every import assert_refused
from support.layers.contract import gradients, random_array, randomize, to_numpy
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
from support.tiers import nightly_unless

from zoo import layers
from zoo.layers import (
    LearnedPositions,
    RotaryPositions,
    ShawRelativePositions,
    SinusoidalPositions,
    T5RelativePositions,
)
from zoo.layers.positions.base import Positions


@pytest.mark.parametrize("name", POSITIONS)
def test_terms_of_pairs(name):
    make = POSITIONS[name]
    positions = build_positions(make())
    _check_rows(positions)
    query, weights = random_array((2, 7, 3, 19), 1), random_array((2, 7, 3, 5), 2)
    terms = pair_terms(positions, query, weights, QUERY_POSITIONS, KEY_POSITIONS)
    assert bool(terms) == positions.acts_on_scores  # which fused kernels ask
    if terms:
        assert positions.encode(query) is query and positions.rotate(query) is query
    assert bool(terms) == (name in RELATIVE)
    for term, reference in terms.items():  # they depend on the distance alone
        there = pair_terms(positions, query, weights, QUERY_POSITIONS + 1000, KEY_POSITIONS + 1000)[term]
        np.testing.assert_array_equal(to_numpy(there), to_numpy(reference))
    if terms:
        with pytest.raises(NotImplementedError, match=type(positions).__name__):
            positions.call(np.zeros((2, 3, 4), "float32"))
    for policy in ("mixed_bfloat16", "mixed_float16"):
        _check_dtypes(build_positions(make(dtype=policy)))


def _check_rows(positions):
    """Checks that rows of some queries are rows of the whole."""
    query, weights = random_array((2, 7, 11, 19), 1), random_array((2, 7, 11, 13), 2)
    inputs = ops.convert_to_tensor(random_array((2, 11, 22), 3))
    places, keys = np.arange(2, 13, dtype="int32"), np.arange(13, dtype="int32")
    whole = {name: to_numpy(term) for name, term in pair_terms(positions, query, weights, places, keys).items()}
    whole |= {"rotate": to_numpy(positions.rotate(query, 2)), "encode": to_numpy(positions.encode(inputs, 2))}
    for start in (0, 3, 8):
        cut, first = slice(start, start + 3), int_tensor(2 + start)
        own = ops.arange(3, dtype="int32") + first
        terms = pair_terms(positions, query[:, :, cut], weights[:, :, cut], own, int_tensor(keys))
        terms |= {
            "rotate": positions.rotate(query[:, :, cut], first),
            "encode": positions.encode(inputs[:, cut], first),
        }
        for name, term in terms.items():
            np.testing.assert_allclose(to_numpy(term), whole[name][..., cut, :], atol=2e-6, err_msg=name)


def _check_dtypes(positions):
    """Checks that results keep the dtype and biases are float32."""
    half = positions.compute_dtype
    query, weights, inputs = (
        ops.convert_to_tensor(random_array(shape, 1), half) for shape in ((2, 7, 3, 19), (2, 7, 3, 5), (2, 3, 22))
    )
    terms = pair_terms(positions, query, weights, QUERY_POSITIONS, KEY_POSITIONS)
    terms |= {"rotate": positions.rotate(query), "encode": positions.encode(inputs)}
    for name, term in terms.items():
        assert keras.backend.standardize_dtype(term.dtype) == ("float32" if name == "bias" else half), name


def test_the_base_class_changes_nothing():
    positions, inputs = Positions(), random_array((2, 7, 3, 19), 1)
    assert positions.encode(inputs) is inputs and positions.rotate(inputs) is inputs
    assert positions.encoded_size(5) == 5 and not positions.acts_on_scores
    assert not pair_terms(positions, inputs, inputs, QUERY_POSITIONS, KEY_POSITIONS)


@every_kind
def test_in_attention(make):
    positions, inputs = make(name="places"), random_array((2, 6, 22), 1)
    attention, other = (layers.MultiHeadAttention(7, 4, positions=positions, name=name) for name in ("one", "other"))
    attention.build(inputs.shape, inputs.shape)
    assert all(weight.path.startswith("one/places/") for weight in positions.weights)
    randomize(attention)
    whole = to_numpy(attention(inputs, inputs, use_causal_mask=True))
    cache = attention.create_cache(2, 9)
    for part in [slice(0, 3), slice(3, 4), slice(4, 6)]:  # a prefix at once, then step by step
        output, cache = attention(inputs[:, part], inputs[:, part], cache=cache)
        np.testing.assert_allclose(to_numpy(output), whole[:, part], atol=5e-6, rtol=5e-5)
    order = np.array([3, 0, 4, 1, 2, 5])  # with positions it counts
    plain, mixed = (to_numpy(attention(inputs, values)) for values in (inputs, inputs[:, order]))
    assert not np.allclose(plain, mixed, atol=1e-5)
    # One object may serve layers of equal sizes.
    before = list(positions.weights)
    other.build(inputs.shape, inputs.shape)
    positions.build_for_attention(7, 4, 4, 22, 22)
    assert all(new is old for new, old in zip(positions.weights, before, strict=True))
    assert {id(weight) for weight in positions.weights} <= {id(weight) for weight in other.weights}
    if positions.needs:
        with pytest.raises(ValueError, match=f"places.*{re.escape(str(dict(positions.sizes)))}"):
            positions.build_for_attention(9, 8, 8, 18, 18)


def test_attention_without_positions_knows_no_order():
    inputs, attention = random_array((2, 5, 22), 1), layers.MultiHeadAttention(7, 4)
    plain, mixed = (to_numpy(attention(inputs, values)) for values in (inputs, inputs[:, [3, 0, 4, 1, 2]]))
    np.testing.assert_allclose(plain, mixed, atol=1e-5)


@pytest.mark.parametrize("name", nightly_unless(("shaw", "t5").__contains__, POSITIONS))
def test_chunks_of_queries_and_their_gradients_agree_with_all_at_once(name):
    inputs, direction = (ops.convert_to_tensor(random_array((2, 6, 22), seed)) for seed in (1, 2))
    results, found = [], []
    for implementation in ("dense", "blockwise"):
        attention = layers.MultiHeadAttention(7, 4, positions=POSITIONS[name](), implementation=implementation)
        attention.build(inputs.shape, inputs.shape)
        randomize(attention)

        def loss(attention=attention):
            return ops.sum(attention(inputs, inputs, use_causal_mask=True) * direction)

        results.append(to_numpy(attention(inputs, inputs, use_causal_mask=True)))
        found.append(gradients(loss, attention.trainable_variables))
    np.testing.assert_allclose(results[1], results[0], atol=5e-6, rtol=5e-5)
    for blockwise, dense in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(blockwise, dense, atol=2e-4, rtol=1e-4)


def test_a_position_of_ones_own_needs_one_method_only():
    class Neighbours(Positions):
        def bias(self, query_positions, key_positions):
            near = ops.abs(query_positions[:, None] - key_positions[None]) <= 1
            return ops.where(near, 0.0, -1e9)[None]

    attention, inputs = layers.MultiHeadAttention(2, 3, positions=Neighbours()), random_array((2, 5, 6), 1)
    _, weights = attention(inputs, inputs, return_attention_scores=True)
    near = np.abs(np.subtract.outer(np.arange(5), np.arange(5))) <= 1
    assert np.array_equal(to_numpy(weights) > 0, np.broadcast_to(near, (2, 2, 5, 5)))


WRONG = [
    (lambda: SinusoidalPositions(0), "max_wavelength.*0"),
    (lambda: SinusoidalPositions()(np.zeros((2, 3, 5), "float32")), "size.*concatenate.*5"),
    (lambda: SinusoidalPositions().build_for_attention(2, 4, 4, 8, 7), "size.*concatenate.*7"),
    (lambda: SinusoidalPositions(concatenate=True, size=5), "size.*5"),
    (lambda: SinusoidalPositions(size=4), "size.*concatenate.*4"),
    (lambda: LearnedPositions(7, concatenate=True, size=0), "size.*0"),
    (lambda: LearnedPositions(0), "max_length.*0"),
    (lambda: LearnedPositions(7).build_for_attention(2, 4, 4, 8, 6), "concatenate.*8.*6"),
    (lambda: RotaryPositions(-1.0), "max_wavelength.*-1.0"),
    (lambda: RotaryPositions(fraction=0), "fraction.*0"),
    (lambda: RotaryPositions(fraction=0.25)(np.zeros((2, 3, 5, 7), "float32")), "fraction=0.25.*7"),
    (lambda: ShawRelativePositions(0), "max_distance.*0"),
    (lambda: T5RelativePositions(7), "num_buckets.*7"),
    (lambda: T5RelativePositions(1, bidirectional=False), "num_buckets.*1"),
    (lambda: T5RelativePositions(32, 8), "max_distance.*32.*8"),
]


def test_errors():
    assert_refused(WRONG)
