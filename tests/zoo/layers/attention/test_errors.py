"""Options that are refused, and initializers."""

import json
from functools import partial

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.refusals import check_refusals

from zoo import layers


def _heads(**options):
    return layers.MultiHeadAttention(2, 4, **options)


def test_bad_options():
    check_refusals(
        [
            (lambda: layers.MultiHeadAttention(0, 4), "`num_heads`", "num_heads=0"),
            (lambda: layers.MultiHeadAttention(2, 4.0), "`key_dim`", "key_dim=4.0"),
            (lambda: _heads(value_dim=0), "`value_dim`", "value_dim=0"),
            (lambda: _heads(output_dim=-1), "`output_dim`", "output_dim=-1"),
            (lambda: _heads(query_dim=0), "`query_dim`", "query_dim=0"),
            (lambda: _heads(positions="rotary"), "`positions`", "RotaryPositions()", "positions='rotary'"),
            (lambda: _heads(positions=layers.RotaryPositions), "`positions`", "positions=<class"),
            (lambda: _heads(dropout=1.0), "`dropout`", "dropout=1.0"),
            (lambda: layers.ScaledDotProductAttention(dropout=-0.1), "`dropout`", "dropout=-0.1"),
            (lambda: layers.AdditiveAttention(0), "`units`", "units=0"),
            (lambda: layers.AdditiveScore("8"), "`units`", "units=8"),
            (lambda: layers.ConcatAttention(True), "`units`", "units=True"),
            (lambda: layers.LocationScore(0), "`max_length`", "max_length=0"),
            (lambda: layers.CosineScore(0.0), "`temperature`", "temperature=0.0"),
            (lambda: layers.CosineAttention(temperature=-1), "`temperature`", "temperature=-1"),
            (lambda: layers.CallableScore(len, hidden_size=0), "`hidden_size`", "hidden_size=0"),
            (lambda: layers.CallableScore("dot"), "`function`", "function='dot'"),
            (lambda: layers.CallableScore(layers.DotScore), "`function`", "DotScore"),
            (lambda: layers.Attention("dott"), "score", "'dott'", "Did you mean dot"),
            (lambda: _heads(score="trilinear"), "score", "'trilinear'"),
            (lambda: layers.Attention(layers.DotScore), "`score`", "DotScore"),
            (lambda: layers.Attention(None), "`score`", "score=None"),
            (lambda: layers.FeedForward(-1), "`intermediate_dim`", "intermediate_dim=-1"),
            (lambda: layers.Maxout(0), "`group_size`", "group_size=0"),
            (lambda: layers.Maxout(2)(np.zeros((2, 3))), "`group_size`=2", "(2, 3)"),
        ]
    )


def test_heads_of_different_sizes_where_they_must_be_equal():
    rotary, shaw = layers.RotaryPositions(), layers.ShawRelativePositions(3)
    for kind, options, part in (
        (layers.MultiHeadAttention, {}, "ScaledDotScore"),
        (layers.MultiHeadAttention, {"score": "dot"}, "DotScore"),
        (layers.GroupedQueryAttention, {"num_key_value_heads": 1, "score": "cosine"}, "CosineScore"),
        (layers.SlidingWindowAttention, {"window": 3}, "ScaledDotScore"),
        (layers.LinearAttention, {}, "ScaledDotScore"),
        (layers.MultiHeadAttention, {"score": "general", "positions": rotary}, "RotaryPositions"),
        (layers.MultiHeadAttention, {"score": "additive", "positions": shaw}, "ShawRelativePositions"),
        (layers.MultiHeadAttention, {"score": "cosine", "share_score": False}, "CosineScore"),
    ):
        assert kind(num_heads=2, key_dim=4, query_dim=4, **options).query_dim == 4
        wrong = partial(kind, num_heads=2, key_dim=4, query_dim=6, **options)
        check_refusals([(wrong, "`query_dim`", "`key_dim`", part, "query_dim=6", "key_dim=4")])


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


def test_queries_and_keys_of_different_sizes():
    shapes, words = ((2, 3, 5), (2, 3, 7)), ("`GeneralScore`", "(2, 3, 5)", "(2, 3, 7)")
    for score, single in (
        (layers.DotScore, layers.DotAttention),
        (layers.ScaledDotScore, layers.ScaledDotProductAttention),
        (layers.CosineScore, layers.CosineAttention),
    ):
        for make in (score, single, partial(layers.Attention, score())):
            check_refusals(
                [
                    (partial(make().build, *shapes), score.__name__, *words),
                    (partial(make(), *map(np.zeros, shapes)), score.__name__, *words),
                ]
            )


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


def test_keys_and_values_of_different_lengths():
    query, value, key = (np.ones((1, length, 8), "float32") for length in (5, 7, 4))
    for layer in (
        _heads(),
        layers.SlidingWindowAttention(2, 4, 2),
        layers.MultiScaleRetention(2, 4),
        layers.LinearAttention(2, 4),
        layers.AdditiveAttention(3),
    ):
        check_refusals([(lambda layer=layer: layer(query, value, key), "`key`", "(1, 4, 8)", "(1, 7, 8)")])


def test_attention_masks_of_another_number_of_heads():
    inputs = np.ones((3, 5, 8), "float32")
    for heads in (1, 2):
        layer, mask = layers.MultiHeadAttention(heads, 4), np.ones((3, 3, 5, 5), bool)
        call = partial(layer, inputs, inputs, attention_mask=mask)
        check_refusals([(call, "`attention_mask`", f"N = {heads}", "(3, 3, 5, 5)")])
