"""Luong's local attention and attention pooling: formulas, windows, and what they refuse."""

import math

import numpy as np
import pytest
from support.layers.cases import CASES
from support.layers.contract import arrays, build, call, random_array, random_mask, randomize, to_numpy
from support.layers.refusals import check_refusals

from zoo import layers

BY_NAME = {case.name: case for case in CASES}
T, S, D = 7, 11, 5


def _weights(layer, query, key, allowed, window, first=0):
    """Returns the weights [T, S] of one sequence with dot scores, from the formulas."""
    weights = np.zeros((len(query), len(key)))
    for t in range(len(query)):
        place, gaussian = float(first + t), lambda s: 1.0
        if layer.alignment == "predictive":
            hidden = np.tanh(query[t] @ to_numpy(layer.hidden_dense.kernel))
            place = allowed.sum() / (1.0 + math.exp(-(hidden @ to_numpy(layer.place_dense.kernel)).item()))
            gaussian = lambda s, place=place: math.exp(-((s - place) ** 2) / (2 * (window / 2) ** 2))  # noqa: E731
        inside = [s for s in range(len(key)) if allowed[s] and place - window <= s <= place + window]
        total = sum(math.exp(query[t] @ key[s]) for s in inside)
        for s in inside:
            weights[t, s] = math.exp(query[t] @ key[s]) / total * gaussian(s)
    return weights


@pytest.mark.parametrize("alignment", ["monotonic", "predictive"])
@pytest.mark.parametrize("window", [1, 2])
def test_formula(alignment, window, monkeypatch):
    monkeypatch.setattr("zoo.layers.execution.plan.CHUNK_BUDGET", 50)
    layer = layers.LocalAttention(window, alignment, score="dot", units=3)
    layer.build((2, T, D), (2, S, D))
    randomize(layer)
    query, value, mask = random_array((2, T, D), 1), random_array((2, S, D), 2), random_mask((2, S))
    for layer.implementation in ("dense", "blockwise"):
        output, weights = map(to_numpy, layer(query, value, value_mask=mask, return_attention_scores=True))
        for b in range(2):
            expected = _weights(layer, query[b], value[b], mask[b], window)
            np.testing.assert_allclose(weights[b], expected, atol=2e-6)
            np.testing.assert_allclose(output[b], expected @ value[b], atol=5e-6)


def test_start_index_moves_the_window():
    layer = layers.LocalAttention(1, score="dot")
    query, value = random_array((2, 1, D), 1), random_array((2, S, D), 2)
    for place in (0, 4, 10):
        _, weights = layer(query, value, start_index=place, return_attention_scores=True)
        expected = _weights(layer, query[0], value[0], np.ones(S, bool), 1, first=place)
        np.testing.assert_allclose(to_numpy(weights)[0], expected, atol=2e-6)
    # Behind the last key there is nothing to see.
    output, weights = layer(query, value, start_index=12, return_attention_scores=True)
    assert not np.any(to_numpy(output)) and not np.any(to_numpy(weights))


def test_padding_does_not_move_the_predicted_place():
    layer = layers.LocalAttention(2, "predictive", score="dot")
    query, value = random_array((2, T, D), 1), random_array((2, S, D), 2)
    short = to_numpy(layer(query, value[:, :6]))
    padded = to_numpy(layer(query, value, value_mask=np.arange(S)[None].repeat(2, 0) < 6))
    np.testing.assert_allclose(padded, short, atol=1e-6)


def test_prediction_with_a_cache_counts_the_real_keys_and_not_the_room():
    layer = layers.LocalAttention(2, "predictive", score="dot", units=3)
    layer.build((2, T, D), (2, T, D))
    randomize(layer)
    inputs, room = random_array((2, T, D), 1), T + 4
    real = np.arange(room) < np.array([[T], [T - 2]])  # none of the room, and padding in one sequence
    expected = to_numpy(layer(inputs, inputs, value_mask=real[:, :T], use_causal_mask=True))
    for name in ("value_mask", "key_mask"):
        cache = layer.create_cache(2, room)
        for part in (slice(0, 3), slice(3, 4), slice(4, T)):
            output, cache = layer(inputs[:, part], inputs[:, part], cache=cache, **{name: real})
            np.testing.assert_allclose(to_numpy(output), expected[:, part], atol=2e-6)


def test_prediction_refuses_a_cache_that_does_not_tell_the_real_keys():
    layer, inputs, mask = layers.LocalAttention(2, "predictive"), random_array((2, 1, D), 1), np.ones((2, 1), bool)
    layer.build(inputs.shape, inputs.shape)
    without, grows = layer.create_cache(2, T), layer.create_cache(2)
    check_refusals(
        [
            (lambda: layer(inputs, inputs, cache=without), "`alignment='predictive'`", "without a mask of values"),
            (lambda: layer(inputs, inputs, value_mask=mask, cache=grows), "`alignment='predictive'`", "growing cache"),
        ]
    )


def test_predictive_by_hand():
    # Weights of zero predict the middle of 4 keys, p = 2. D = 2 reaches them all: a quarter each, times exp(−d²/2).
    layer = layers.LocalAttention(2, "predictive", score="dot")
    layer.build((1, 1, 2), (1, 4, 2))
    layer.set_weights([np.zeros(weight.shape) for weight in layer.weights])
    _, weights = layer(np.zeros((1, 1, 2), "float32"), np.ones((1, 4, 2), "float32"), return_attention_scores=True)
    expected = np.exp([-2.0, -0.5, 0.0, -0.5]) / 4
    np.testing.assert_allclose(to_numpy(weights)[0, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["additive_pooling", "multi_head_pooling"])
def test_pooling_is_attention_with_its_own_queries(name):
    case = BY_NAME[name]
    layer, inputs, mask = build(case), arrays(case)["inputs"], random_mask((2, 5))
    queries = np.broadcast_to(to_numpy(layer.queries), (2, *layer.queries.shape))
    expected = layer.attention(queries, inputs, value_mask=mask, return_attention_scores=True)
    results = call(case, layer, arrays(case), mask=mask)
    np.testing.assert_array_equal(results[0].reshape(expected[0].shape), to_numpy(expected[0]))
    np.testing.assert_array_equal(results[1], to_numpy(expected[1]))


def test_pooling_by_hand():
    # The query (1, 0) scores the keys ln 3 and 0 (times √2 / √2): weights 3/4 and 1/4.
    layer = layers.AttentionPooling(layers.DotAttention())
    layer.build((1, 2, 2))
    layer.set_weights([np.array([[1.0, 0.0]])])
    inputs = np.array([[[math.log(3.0), 4.0], [0.0, 8.0]]], "float32")
    np.testing.assert_allclose(to_numpy(layer(inputs)), [[0.75 * math.log(3.0), 5.0]], rtol=1e-6)


def test_errors():
    check_refusals(
        [
            (lambda: layers.LocalAttention(0), "`window`", "window=0"),
            (lambda: layers.LocalAttention(2, units=0), "`units`", "units=0"),
            (lambda: layers.LocalAttention(2, "gaussian"), "`alignment`", "monotonic, predictive", "'gaussian'"),
            (lambda: layers.AttentionPooling(layers.DotAttention(), num_queries=0), "`num_queries`", "num_queries=0"),
        ]
    )
