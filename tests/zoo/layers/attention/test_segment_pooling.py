"""Pooling within segments, from its formula."""

import math

import numpy as np
from support.layers.cases import CASES
from support.layers.contract import arrays, build, random_array, to_numpy
from support.layers.refusals import check_refusals

from zoo import layers

(CASE,) = [case for case in CASES if case.covers is layers.SegmentPooling]
SEGMENTS = np.array([[0, 0, 2, 2, 2], [1, 1, 1, 0, 7]])


def _reference(pooling, inputs, segments, mask):
    score, query = pooling.score, to_numpy(pooling.query)[0]
    w1, w2, v = (to_numpy(dense.kernel) for dense in (score.query_dense, score.key_dense, score.score_dense))
    found = np.zeros((pooling.num_segments, len(inputs)))
    for segment in range(pooling.num_segments):
        places = [t for t in range(len(inputs)) if segments[t] == segment and mask[t]]
        hidden = [np.tanh(query @ w1 + inputs[t] @ w2 + to_numpy(score.query_dense.bias)) for t in places]
        terms = [math.exp((row @ v).item()) for row in hidden]
        for t, term in zip(places, terms, strict=True):
            found[segment, t] = term / sum(terms)
    return found @ inputs, found


def test_segment_pooling():
    pooling, inputs = build(CASE).pooling, arrays(CASE)["inputs"]
    mask = np.array([[True] * 5, [True, False, True, False, True]])
    output, weights = pooling(inputs, SEGMENTS, mask=mask, return_attention_scores=True)
    for b in range(2):
        expected, expected_weights = _reference(pooling, inputs[b], SEGMENTS[b], mask[b])
        np.testing.assert_allclose(to_numpy(weights)[b], expected_weights, atol=2e-6)
        np.testing.assert_allclose(to_numpy(output)[b], expected, atol=5e-6)
    assert not np.any(to_numpy(output)[1, 0]) and not np.any(to_numpy(output)[0, 1])  # nothing real in them


def test_segment_pooling_by_hand():
    # Scores are 0, ln 3 and 7: weights 1/4 and 3/4 in the first segment, all of it in the second.
    pooling = layers.SegmentPooling(2, score="dot")
    pooling.build((1, 3, 1))
    pooling.set_weights([np.ones((1, 1))])
    inputs = np.array([[[0.0], [math.log(3.0)], [7.0]]], "float32")
    output, weights = pooling(inputs, np.array([[0, 0, 1]]), return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(weights)[0], [[0.25, 0.75, 0.0], [0.0, 0.0, 1.0]], atol=1e-6)
    np.testing.assert_allclose(to_numpy(output)[0], [[0.75 * math.log(3.0)], [7.0]], atol=1e-6)


def test_one_segment_is_attention_pooling():
    inputs = random_array((2, 5, 11), 3)
    whole = layers.AttentionPooling(layers.AdditiveAttention(7))
    expected = to_numpy(whole(inputs))
    pooling = layers.SegmentPooling(1, layers.AdditiveScore(7))
    pooling.build((2, 5, 11))
    pooling.query.assign(whole.queries)
    for own, other in zip(pooling.score.weights, whole.attention.score.weights, strict=True):
        own.assign(other)
    output = pooling(inputs, np.zeros((2, 5), "int32"))
    np.testing.assert_allclose(to_numpy(output)[:, 0], expected, atol=2e-6)


def test_no_texts_and_texts_of_nothing():
    pooling = layers.SegmentPooling(2)
    for shape in ((0, 3), (2, 0)):
        inputs, segments = np.ones((*shape, 5), "float32"), np.zeros(shape, "int32")
        output, weights = pooling(inputs, segments, return_attention_scores=True)
        assert output.shape == (shape[0], 2, 5) and not np.any(to_numpy(output))
        assert weights.shape == (shape[0], 2, shape[1])


def test_huge_scores_of_another_segment_change_nothing():
    pooling = layers.SegmentPooling(2, score="dot")
    pooling.build((1, 4, 1))
    pooling.set_weights([np.ones((1, 1))])
    inputs = np.array([[[300.0], [200.0], [-1e4], [-1e4]]], "float32")
    _, weights = pooling(inputs, np.array([[0, 0, 1, 1]]), return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(weights)[0], [[1, 0, 0, 0], [0, 0, 0.5, 0.5]], atol=1e-6)


def test_errors():
    inputs, segments, mask = np.zeros((2, 3, 5), "float32"), np.zeros((2, 3), "int32"), np.ones((2, 3))
    check_refusals(
        [
            (lambda: layers.SegmentPooling(0), "`num_segments`", "num_segments=0"),
            (lambda: layers.SegmentPooling(3, score="location"), "`score`", "LocationScore"),
            (lambda: layers.SegmentPooling(3)(inputs, segments, mask=mask), "`mask`", "float32"),
        ]
    )
