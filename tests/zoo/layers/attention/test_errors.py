"""Options that are refused, and initializers."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from zoo import layers


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.MultiHeadAttention(0, 4), "`num_heads` must be a positive integer. Received: num_heads=0."),
        (lambda: layers.MultiHeadAttention(2, 4.0), "`key_dim` must be a positive integer. Received: key_dim=4.0."),
        (
            lambda: layers.MultiHeadAttention(2, 4, value_dim=0),
            "`value_dim` must be a positive integer. Received: value_dim=0.",
        ),
        (
            lambda: layers.MultiHeadAttention(2, 4, output_dim=-1),
            "`output_dim` must be a positive integer. Received: output_dim=-1.",
        ),
        (
            lambda: layers.MultiHeadAttention(2, 4, query_dim=0),
            "`query_dim` must be a positive integer. Received: query_dim=0.",
        ),
        (
            lambda: layers.MultiHeadAttention(2, 4, positions="rotary"),
            r"`positions` must be a Positions object, such as RotaryPositions\(\), or None. "
            "Received: positions='rotary'.",
        ),
        (
            lambda: layers.MultiHeadAttention(2, 4, positions=layers.RotaryPositions),
            "`positions` must be a Positions object, .*Received: positions=<class .*RotaryPositions'>.",
        ),
        (
            lambda: layers.MultiHeadAttention(2, 4, dropout=1.0),
            r"`dropout` must be in \[0, 1\). Received: dropout=1.0.",
        ),
        (
            lambda: layers.ScaledDotProductAttention(dropout=-0.1),
            r"`dropout` must be in \[0, 1\). Received: dropout=-0.1.",
        ),
        (lambda: layers.AdditiveAttention(0), "`units` must be a positive integer. Received: units=0."),
        (lambda: layers.AdditiveScore("8"), "`units` must be a positive integer. Received: units=8."),
        (lambda: layers.ConcatAttention(True), "`units` must be a positive integer. Received: units=True."),
        (lambda: layers.LocationScore(0), "`max_length` must be a positive integer. Received: max_length=0."),
        (lambda: layers.CosineScore(0.0), "`temperature` must be positive. Received: temperature=0.0."),
        (
            lambda: layers.CosineAttention(temperature=-1),
            "`temperature` must be positive. Received: temperature=-1.",
        ),
        (
            lambda: layers.CallableScore(len, hidden_size=0),
            "`hidden_size` must be a positive integer. Received: hidden_size=0.",
        ),
        (
            lambda: layers.CallableScore("dot"),
            "`function` must be a callable or a Keras layer that takes query and key. Received: function='dot'.",
        ),
        (
            lambda: layers.CallableScore(layers.DotScore),
            "`function` must be a callable or a Keras layer .*Received: function=<class .*DotScore'>.",
        ),
        (lambda: layers.Attention("dott"), "Unknown score 'dott'. Did you mean dot"),
        (lambda: layers.MultiHeadAttention(2, 4, score="trilinear"), "Unknown score 'trilinear'. "),
        (
            lambda: layers.Attention(layers.DotScore),
            "`score` must be a Score, the name of one, or a callable or Keras layer that takes query and key. "
            "Received: score=<class .*DotScore'>.",
        ),
        (lambda: layers.Attention(None), "`score` must be a Score, .*Received: score=None."),
        (
            lambda: layers.FeedForward(-1),
            "`intermediate_dim` must be a positive integer. Received: intermediate_dim=-1.",
        ),
        (lambda: layers.Maxout(0), "`group_size` must be a positive integer. Received: group_size=0."),
        (
            lambda: layers.Maxout(2)(np.zeros((2, 3))),
            r"The last axis must be a multiple of `group_size`=2. Received: input_shape=\(2, 3\).",
        ),
    ],
)
def test_bad_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda **sizes: layers.MultiHeadAttention(2, **sizes), "ScaledDotScore"),
        (lambda **sizes: layers.MultiHeadAttention(2, score="dot", **sizes), "DotScore"),
        (lambda **sizes: layers.GroupedQueryAttention(2, 1, score="cosine", **sizes), "CosineScore"),
        (lambda **sizes: layers.SlidingWindowAttention(2, window=3, **sizes), "ScaledDotScore"),
        (lambda **sizes: layers.LinearAttention(2, **sizes), "ScaledDotScore"),
        (
            lambda **sizes: layers.MultiHeadAttention(2, score="general", positions=layers.RotaryPositions(), **sizes),
            "RotaryPositions",
        ),
        (
            lambda **sizes: layers.MultiHeadAttention(
                2, score="additive", positions=layers.ShawRelativePositions(3), **sizes
            ),
            "ShawRelativePositions",
        ),
    ],
)
def test_heads_of_different_sizes_where_they_must_be_equal(make, part):
    assert make(key_dim=4, query_dim=4).query_dim == 4
    message = f"`query_dim` must equal `key_dim` with {part}. Received: query_dim=6, key_dim=4."
    with pytest.raises(ValueError, match=message):
        make(key_dim=4, query_dim=6)


def test_sizes_of_numpy_are_plain_integers():
    four = np.int64(4)
    for made in (
        layers.MultiHeadAttention(np.int32(2), four, four, four, query_dim=four),
        layers.GroupedQueryAttention(four, np.uint8(2), four),
        layers.SlidingWindowAttention(2, 4, window=four),
        layers.BlockLocalAttention(2, 4, block_size=four),
        layers.PerformerAttention(2, 4, num_features=four),
        layers.LocalAttention(window=four, units=four),
        layers.AttentionPooling(layers.DotAttention(), num_queries=four, query_dim=four),
        layers.AdditiveAttention(four),
        layers.LocationScore(four),
        layers.CallableScore(keras.layers.Dot(axes=-1), hidden_size=four),
        layers.LearnedPositions(four, concatenate=True, size=four),
        layers.ShawRelativePositions(four),
        layers.T5RelativePositions(four, max_distance=np.int64(9)),
        layers.FeedForward(four),
        layers.GatedFeedForward(four),
        layers.Maxout(four),
        layers.BidirectionalEncoder(four, num_layers=np.int64(1)),
        layers.GatedConvolutionBlock(four),
    ):
        config = made.get_config()
        assert json.loads(json.dumps(config)) is not None, made
        assert type(made).from_config(config).get_config() == config


@pytest.mark.parametrize("name", ["Dot", "ScaledDot", "Cosine"])
def test_queries_and_keys_of_different_sizes(name):
    score = getattr(layers, f"{name}Score")
    single = getattr(layers, "ScaledDotProductAttention" if name == "ScaledDot" else f"{name}Attention")
    message = (
        rf"`query` and `key` must have the same last axis for {name}Score; `GeneralScore` takes different ones. "
        r"Attention layers are called as \(query, value, key\). "
        r"Received: query_shape=\(2, 3, 5\), key_shape=\(2, 3, 7\)."
    )
    for make in (score, single, lambda: layers.Attention(score())):
        with pytest.raises(ValueError, match=message):
            make().build((2, 3, 5), (2, 3, 7))
        with pytest.raises(ValueError, match=message):
            make()(np.zeros((2, 3, 5)), np.zeros((2, 3, 7)))


def test_base_classes_say_what_to_override():
    with pytest.raises(NotImplementedError, match="Score must override `compare`"):
        layers.Score().compare(None, None)
    with pytest.raises(NotImplementedError, match="BaseAttention must override `compare`"):
        layers.BaseAttention().compare(None, None, None)


def test_a_layer_of_ones_own_needs_one_method_only():
    class CosineScore(layers.Score):
        def compare(self, query, key):
            return ops.matmul(ops.normalize(query), ops.swapaxes(ops.normalize(key), -1, -2))

    query, value = np.eye(2, dtype="float32")[None], np.array([[[3.0, 0.0], [0.0, 5.0]]], "float32")
    _, weights = layers.Attention(CosineScore())(query, value, return_attention_scores=True)
    expected = np.exp(np.eye(2)) / np.exp(np.eye(2)).sum(axis=1)
    np.testing.assert_allclose(ops.convert_to_numpy(weights)[0], expected, rtol=1e-6)


def test_weights_of_equal_shape_do_not_start_equal():
    glorot = keras.initializers.GlorotUniform()
    for initializer in ("glorot_uniform", glorot):
        score = layers.AdditiveScore(7, kernel_initializer=initializer)
        score.build((2, 3, 5), (2, 3, 5))
        heads = layers.MultiHeadAttention(7, 5, kernel_initializer=initializer)
        heads.build((2, 3, 11), (2, 3, 11))
        for first, second in ((score.query_dense, score.key_dense), (heads.query_dense, heads.key_dense)):
            assert not np.array_equal(ops.convert_to_numpy(first.kernel), ops.convert_to_numpy(second.kernel))


def test_any_callable_initializes():
    layer = layers.MultiHeadAttention(2, 3, kernel_initializer=lambda shape, dtype=None: ops.full(shape, 0.5, dtype))
    layer.build((2, 3, 5), (2, 3, 5))
    assert np.all(ops.convert_to_numpy(layer.output_dense.kernel) == 0.5)
