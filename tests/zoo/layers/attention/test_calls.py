"""What a call of an attention layer refuses, and calls at the edge of what it takes."""

import keras
import numpy as np
import pytest
from support.layers.contract import random_array, to_numpy
from support.layers.refusals import check_refusals

from zoo import layers

X = random_array((2, 5, 8), 1)


def _heads(**options):
    return layers.MultiHeadAttention(2, 4, **options)


def test_calls_that_are_refused():
    layer, pairs = _heads(), np.zeros((2, 1, 5, 5), "float32")
    check_refusals(
        [
            (lambda: layer(X), "`value`", "missing"),
            (lambda: layer([X, X]), "`query`", "`value`", "a list"),
            (lambda: layer(X, memory=X), "`memory`", "`project_memory`", "ndarray"),
            (lambda: layer(X[0], X), "`query`", "(5, 8)"),
            (lambda: layer(X, X[0]), "`value`", "(5, 8)"),
            (lambda: layer(X, X, X[0]), "`key`", "(5, 8)"),
            (lambda: layer(X, X, key=X[0]), "`key`", "(5, 8)"),
            (lambda: layer(X[:, :3], X, query_mask=np.ones((2, 1), bool)), "`query_mask`", "3", "(2, 1)"),
            (lambda: layer(X, X, value_mask=np.ones((2, 3), bool)), "`value_mask`", "5", "(2, 3)"),
            (lambda: layer(X[:, :3], X, attention_mask=np.ones((1, 5, 3), bool)), "`attention_mask`", "T = 3, S = 5"),
            (
                lambda: layer(X, X, attention_bias=np.zeros((3, 5, 5), "float32")),
                "`attention_bias`",
                "(2, 2, 5, 5)",
                "(3, 5, 5)",
            ),
            (lambda: layers.DotAttention()(X, X, attention_bias=pairs), "`attention_bias`", "(2, 5, 5)"),
            (lambda: _heads().create_cache(2), "Build or call MultiHeadAttention"),
        ]
    )


def test_the_mask_that_keras_carries_is_no_mask_of_a_cache():
    embedding, layer = keras.layers.Embedding(9, 8, mask_zero=True), _heads()
    layer.build((1, 3, 8), (1, 3, 8))
    tokens = embedding(np.array([[3, 0, 2]]))
    check_refusals([(lambda: layer(tokens, tokens, cache=layer.create_cache(1, 6)), "`value_mask`", "6", "(1, 3)")])


def test_without_keys_there_is_nothing_to_attend_to():
    kinds = (
        _heads(),
        layers.DotAttention(),
        layers.LinearAttention(2, 4),
        layers.SlidingWindowAttention(2, 4, 2),
        layers.DeltaRuleAttention(2, 4),
    )
    for layer in kinds:
        layer.build(X.shape, X.shape)
        for weight in layer.weights:
            weight.assign(np.ones(weight.shape))
        for causal in (False, True):
            assert not np.any(to_numpy(layer(X, X[:, :0], use_causal_mask=causal)))
        assert layer(X[:, :0], X).shape == (2, 0, 8) and layer(X[:0], X[:0]).shape == (0, 5, 8)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_a_row_whose_bias_is_an_additive_mask(policy):
    layer = _heads(dtype=policy)
    for lowest in (-1e9, -np.inf):
        bias = np.zeros((5, 5), "float32")
        bias[2] = lowest
        bias[3, :4] = lowest
        output, weights = layer(X, X, attention_bias=bias, return_attention_scores=True)
        weights = to_numpy(weights)
        assert np.all(np.isfinite(to_numpy(output))) and np.allclose(weights.sum(-1), 1, atol=0.02)
        np.testing.assert_allclose(weights[:, :, 3], np.broadcast_to([0, 0, 0, 0, 1], (2, 2, 5)), atol=1e-6)


def test_a_score_in_another_precision_leaves_the_results_in_that_of_the_layer():
    layer = _heads(score=layers.AdditiveScore(8), dtype="mixed_bfloat16")
    results = layer(X, X, return_attention_scores=True)
    results += (layers.Attention(layers.GeneralScore(), dtype="mixed_bfloat16")(X, X),)
    assert {keras.backend.standardize_dtype(result.dtype) for result in results} == {"bfloat16"}


class _Doubled(layers.MultiHeadAttention):
    """A user's attention with a step of its own."""

    def compare(self, query, key, visibility):
        return 2 * super().compare(query, key, visibility)


def test_the_fused_kernel_leaves_alone_what_a_subclass_computes_otherwise():
    layer = _Doubled(2, 4, implementation="fused")
    fused, (dense, _) = layer(X, X), layer(X, X, return_attention_scores=True)
    layer.implementation = "dense"
    np.testing.assert_allclose(to_numpy(fused), to_numpy(layer(X, X)), atol=1e-6)
    np.testing.assert_allclose(to_numpy(dense), to_numpy(layer(X, X)), atol=1e-6)
