"""Layers against one example each, worked out by hand."""

import math

import numpy as np
import pytest
from support.layers.contract import to_numpy

from zoo import layers

# With scores (ln 3, 0) the weights are (3/4, 1/4), with equal scores (1/2, 1/2).
_LN3 = math.log(3.0)
_EYE = np.eye(2)
_VALUE = np.array([[4.0, 4.0], [0.0, 8.0]])


def check(results, *expected):
    for result, reference in zip(results, expected, strict=False):
        np.testing.assert_allclose(result, np.array(reference), atol=5e-6, rtol=5e-5)


def _single(layer, *inputs, **options):
    results = layer(*(np.array([value], "float32") for value in inputs), return_attention_scores=True, **options)
    return tuple(to_numpy(result)[0] for result in results)


def _set(layer, *weights):
    layer.set_weights(
        [np.array(weight, "float32").reshape(w.shape) for weight, w in zip(weights, layer.weights, strict=True)]
    )


@pytest.mark.parametrize(
    "layer",
    [layers.ScaledDotProductAttention(), layers.Attention(layers.ScaledDotScore())],
    ids=lambda x: type(x).__name__,
)
def test_scaled_dot_by_hand(layer):
    query = [[math.sqrt(2.0) * _LN3, 0.0], [0.0, 0.0]]  # divided by √2: scores (ln 3, 0) and (0, 0)
    score = layers.ScaledDotScore()(np.array([query], "float32"), np.array([_EYE], "float32"))
    check((to_numpy(score)[0],), [[_LN3, 0.0], [0.0, 0.0]])
    check(_single(layer, query, _VALUE, _EYE), [[3.0, 5.0], [2.0, 6.0]], [[0.75, 0.25], [0.5, 0.5]])


def test_additive_by_hand():
    layer = layers.AdditiveAttention(1)
    layer.build((1, 2, 2), (1, 2, 2))
    # Hidden values: tanh of 99 or −99, or of 0, with v = ln 3. The bias takes 99 off.
    _set(layer, [[99.0], [0.0]], [-99.0], [[0.0], [99.0]], [[_LN3]])
    query, value = [[1.0, 5.0], [0.0, 5.0]], [[4.0, 1.0], [8.0, 0.0]]
    # Row 1: tanh(99 − 99 + 99) = 1, tanh(0) = 0 → (ln 3, 0). Row 2: tanh(0) = 0, tanh(−99) = −1 → (0, −ln 3).
    scores = to_numpy(layer.score(np.array([query], "float32"), np.array([value], "float32")))
    check((scores[0],), [[_LN3, 0.0], [0.0, -_LN3]])
    check(_single(layer, query, value), [[5.0, 0.75], [5.0, 0.75]], [[0.75, 0.25], [0.75, 0.25]])


def test_self_attention_by_hand():
    layer = layers.SelfAttention(1, score="dot")
    layer.build((1, 2, 2))
    # Queries (ln 3, 0), keys (1, 0), values (4, 8): scores ((ln 3, 0), (0, 0)).
    _set(layer, [[_LN3], [0.0]], [[1.0], [0.0]], [[4.0], [8.0]])
    check(_single(layer, _EYE), [[5.0], [6.0]], [[0.75, 0.25], [0.5, 0.5]])


def _identity_heads(layer, query_scale=1.0, key_scale=1.0):
    """Makes two heads of size 1: head i sees feature i, and the output puts them side by side."""
    layer.build((1, 2, 2), (1, 2, 2))
    zeros = np.zeros(2)
    weights = [_EYE * query_scale, zeros, _EYE * key_scale, zeros, _EYE, zeros, _EYE, zeros]
    _set(layer, *weights)
    return layer


def test_multi_head_by_hand():
    layer = _identity_heads(layers.MultiHeadAttention(num_heads=2, key_dim=1))
    # Head 1: queries (ln 3, 0), keys (1, 0), values (4, 0). Head 2: queries (0, ln 3), keys (0, 1), values (4, 8).
    output, weights = _single(layer, _EYE * _LN3, _VALUE, _EYE)
    check((weights,), [[[0.75, 0.25], [0.5, 0.5]], [[0.5, 0.5], [0.25, 0.75]]])
    check((output,), [[3.0, 6.0], [2.0, 7.0]])


def test_heads_without_output_projection_by_hand():
    layer = layers.MultiHeadAttention(2, 1, output_projection=False, use_bias=False)
    layer.build((1, 2, 2), (1, 2, 2))
    _set(layer, _EYE, _EYE, _EYE)
    output, _ = _single(layer, _EYE * _LN3, _VALUE, _EYE)  # as above: side by side
    check((output,), [[3.0, 6.0], [2.0, 7.0]])


def test_a_score_of_each_head_by_hand():
    layer = layers.MultiHeadAttention(2, 1, score="general", share_score=False, use_bias=False)
    layer.build((1, 2, 2), (1, 2, 2))
    for head, number in enumerate((1.0, -1.0)):
        _set(layer.score.head_scores[head], [[number]])
    for dense in (layer.query_dense, layer.key_dense, layer.value_dense, layer.output_dense):
        _set(dense, _EYE)
    # As above, but the second head prefers what the first would not: scores (0, −ln 3) for the second query.
    output, weights = _single(layer, _EYE * _LN3, _VALUE, _EYE)
    check((weights,), [[[0.75, 0.25], [0.5, 0.5]], [[0.5, 0.5], [0.75, 0.25]]])
    check((output,), [[3.0, 6.0], [2.0, 5.0]])


@pytest.mark.parametrize(
    ("normalization", "expected"),
    # Scores (ln 3, 0) have exponentials 3 and 1; a sink of 0 adds 1 to their sum, and a bias of −ln 2 halves them.
    [
        ("softmax", [3 / 4, 1 / 4]),
        ("off_by_one", [3 / 5, 1 / 5]),
        ("sink", [3 / 5, 1 / 5]),
        ("sigmoid", [3 / 5, 1 / 3]),
    ],
)
def test_normalization_by_hand(normalization, expected):
    layer = layers.get_normalization(normalization)
    check((to_numpy(layer(np.array([[_LN3, 0.0]], "float32"))),), [expected])


@pytest.mark.parametrize(
    ("normalization", "scores", "expected"),
    # Sparsemax: (0.6, 1) − 0.3. Entmax: of equal scores each has a half, and one that is 5 less has nothing.
    [("sparsemax", [0.0, 0.6, 1.0], [0.0, 0.3, 0.7]), ("entmax15", [5.0, 5.0, 0.0], [0.5, 0.5, 0.0])],
)
def test_sparse_normalization_by_hand(normalization, scores, expected):
    layer = layers.get_normalization(normalization)
    check((to_numpy(layer(np.array([scores], "float32"))),), [expected])


def _identity_feed_forward():
    layer = layers.FeedForward(2)
    layer.build((1, 2, 2))
    _set(layer, _EYE, np.zeros(2), _EYE, np.zeros(2))
    return layer


def test_feed_forward_by_hand():
    layer = layers.FeedForward(2)
    layer.build((1, 2, 2))
    _set(layer, [[1.0, 0.0], [1.0, -1.0]], [0.0, 1.0], [[2.0, 0.0], [0.0, 3.0]], [0.5, 0.0])
    # (1, 2) → (3, −1) → (3, 0) → (6.5, 0);  (0, −1) → (−1, 2) → (0, 2) → (0.5, 6).
    check((to_numpy(layer(np.array([[[1, 2], [0, -1]]], "float32")))[0],), [[6.5, 0.0], [0.5, 6.0]])


def test_maxout_by_hand():
    output = to_numpy(layers.Maxout(2)(np.array([[1, 3, 5, 2], [-1, -2, 0, 0]], "float32")))
    check((output,), [[3.0, 5.0], [-1.0, 0.0]])


@pytest.mark.parametrize(
    ("normalize_first", "expected"),
    # Uniform attention adds the mean of the rows; a norm of two features is (1, −1) or (−1, 1); ReLU keeps the 1.
    # Post-norm: rows + (1, 2) = (3, 2), (1, 6) → (1, −1), (−1, 1) → + (1, 0), (0, 1) = (2, −1), (−1, 2) → norm.
    # Pre-norm: the mean of the normed rows is 0; rows + (1, 0), (0, 1).
    [(False, [[1.0, -1.0], [-1.0, 1.0]]), (True, [[3.0, 0.0], [0.0, 5.0]])],
)
def test_encoder_block_by_hand(normalize_first, expected):
    attention = _identity_heads(layers.MultiHeadAttention(2, 1), query_scale=0.0)
    block = layers.TransformerEncoderBlock(attention, _identity_feed_forward(), normalize_first, epsilon=1e-9)
    check((_single(block, [[2.0, 0.0], [0.0, 4.0]])[0],), expected)


def test_parallel_encoder_block_by_hand():
    # Uniform attention adds the mean (−1/3, 1/3) of the normed rows (1, −1), (−1, 1), (−1, 1); beside it ReLU adds
    # (1, 0) to the first row and (0, 1) to the others. In turn, the first row would be (−2/15, 1/3) and get (0, 1).
    rows, third = [[0.2, 0.0], [0.0, 4.0], [0.0, 4.0]], 1 / 3
    attention = _identity_heads(layers.MultiHeadAttention(2, 1), query_scale=0.0)
    others = [[-third, 5 + third]] * 2
    for parallel, first in ((True, [1.2 - third, third]), (False, [0.2 - third, 1 + third])):
        block = layers.TransformerEncoderBlock(
            attention, _identity_feed_forward(), True, epsilon=1e-9, parallel_residual=parallel
        )
        check((_single(block, rows)[0],), [first, *others])
    with pytest.raises(ValueError, match="`parallel_residual` requires `normalize_first`"):
        layers.TransformerEncoderBlock(attention, _identity_feed_forward(), parallel_residual=True)


def test_sandwich_norm_encoder_block_by_hand():
    # Normed rows (1, −1), (−1, 1), (−1, 1) have the mean (−1/3, 1/3), which is normed to (−1, 1) and added to each row:
    # (2, 1), (−1, 5), (−1, 5). Normed, ReLU makes (1, 0), (0, 1) of them, which are normed to (1, −1), (−1, 1).
    attention = _identity_heads(layers.MultiHeadAttention(2, 1), query_scale=0.0)
    block = layers.TransformerEncoderBlock(attention, _identity_feed_forward(), True, epsilon=1e-9, sandwich_norm=True)
    check((_single(block, [[3.0, 0.0], [0.0, 4.0], [0.0, 4.0]])[0],), [[3.0, 0.0], [-2.0, 6.0], [-2.0, 6.0]])
    with pytest.raises(ValueError, match="`sandwich_norm` requires `normalize_first`"):
        layers.TransformerEncoderBlock(attention, _identity_feed_forward(), sandwich_norm=True)


def test_res_post_norm_encoder_block_by_hand():
    # Attention returns the mean of the rows, (1, 8/3), which is normed to (−1, 1) and added to each row: (2, 1),
    # (−1, 5), (−1, 5). ReLU makes (2, 1), (0, 5) of them, which are normed to (1, −1), (−1, 1).
    attention = _identity_heads(layers.MultiHeadAttention(2, 1), query_scale=0.0)
    block = layers.TransformerEncoderBlock(attention, _identity_feed_forward(), epsilon=1e-9, res_post_norm=True)
    check((_single(block, [[3.0, 0.0], [0.0, 4.0], [0.0, 4.0]])[0],), [[3.0, 0.0], [-2.0, 6.0], [-2.0, 6.0]])
    with pytest.raises(ValueError, match="`res_post_norm` requires `normalize_first=False`"):
        layers.TransformerEncoderBlock(attention, _identity_feed_forward(), True, res_post_norm=True)


@pytest.mark.parametrize(
    ("normalize_first", "expected"),
    # Post-norm: self-attention adds (2, 0) to row 1 and the mean (1, 2) to row 2: (4, 0), (1, 6) → (1, −1), (−1, 1);
    # cross-attention adds the memory's mean (2, 6): (3, 5), (1, 7) → (−1, 1) twice; + (0, 1) = (−1, 2) → (−1, 1).
    # Pre-norm: normed rows (1, −1), (−1, 1), so + (1, −1) and + (0, 0): (3, −1), (0, 4); + (2, 6) = (5, 5), (2, 10);
    # a row of equal features is normed to 0 and adds 0, the other adds (0, 1).
    [(False, [[-1.0, 1.0], [-1.0, 1.0]]), (True, [[5.0, 5.0], [2.0, 11.0]])],
)
def test_decoder_block_by_hand(normalize_first, expected):
    heads = [_identity_heads(layers.MultiHeadAttention(2, 1, name=name), query_scale=0.0) for name in ("own", "cross")]
    block = layers.TransformerDecoderBlock(*heads, _identity_feed_forward(), normalize_first, epsilon=1e-9)
    check((_single(block, [[2.0, 0.0], [0.0, 4.0]], _VALUE)[0],), expected)
