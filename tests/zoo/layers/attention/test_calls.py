"""What a call of an attention layer refuses, and calls at the edge of what it takes."""

import keras
import numpy as np
import pytest
from support.layers.contract import random_array, to_numpy

from zoo import layers

X = random_array((2, 5, 8), 1)


def _heads(**options):
    return layers.MultiHeadAttention(2, 4, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda layer: layer(X), "`value` is missing"),
        (lambda layer: layer([X, X]), "separate arguments"),
        (lambda layer: layer(X, memory=X), "`memory` must be what `project_memory` returned. Received: ndarray."),
        (lambda layer: layer(X[0], X), r"`query` must be \[B, length, size\]. Received: shape=\(5, 8\)."),
        (lambda layer: layer(X, X[0]), r"`value` must be \[B, length, size\]."),
        (lambda layer: layer(X, X, X[0]), r"`key` must be \[B, length, size\]."),
        (lambda layer: layer(X, X, key=X[0]), r"`key` must be \[B, length, size\]."),
        (
            lambda layer: layer(X[:, :3], X, query_mask=np.ones((2, 1), bool)),
            r"`query_mask` must be \[B, T\], T = 3. Received: shape=\(2, 1\).",
        ),
        (
            lambda layer: layer(X, X, value_mask=np.ones((2, 3), bool)),
            r"`value_mask` must be \[B, S\], S = 5. Received: shape=\(2, 3\).",
        ),
        (
            lambda layer: layer(X[:, :3], X, attention_mask=np.ones((1, 5, 3), bool)),
            r"`attention_mask` must be \[\.\.\., T, S\], T = 3, S = 5.",
        ),
        (
            lambda layer: layer(X, X, attention_bias=np.zeros((3, 5, 5), "float32")),
            r"`attention_bias` must broadcast to the scores, \(2, 2, 5, 5\). Received: shape=\(3, 5, 5\).",
        ),
        (
            lambda layer: layers.DotAttention()(X, X, attention_bias=np.zeros((2, 1, 5, 5), "float32")),
            r"`attention_bias` must broadcast to the scores, \(2, 5, 5\).",
        ),
        (lambda layer: layer.create_cache(2), "Build MultiHeadAttention, or call it, first"),
    ],
)
def test_calls_that_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(_heads())


def test_the_mask_that_keras_carries_is_no_mask_of_a_cache():
    embedding, layer = keras.layers.Embedding(9, 8, mask_zero=True), _heads()
    layer.build((1, 3, 8), (1, 3, 8))
    with pytest.raises(ValueError, match=r"`value_mask` must be \[B, S\], S = 6. Received: shape=\(1, 3\)."):
        tokens = embedding(np.array([[3, 0, 2]]))
        layer(tokens, tokens, cache=layer.create_cache(1, 6))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "make",
    [_heads, layers.DotAttention, lambda: layers.LinearAttention(2, 4), lambda: layers.SlidingWindowAttention(2, 4, 2)],
    ids=["heads", "single", "linear", "window"],
)
def test_without_keys_there_is_nothing_to_attend_to(make, causal):
    layer = make()
    layer.build(X.shape, X.shape)
    for weight in layer.weights:
        weight.assign(np.ones(weight.shape))
    assert not np.any(to_numpy(layer(X, X[:, :0], use_causal_mask=causal)))


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("lowest", [-1e9, -np.inf])
def test_a_row_whose_bias_is_an_additive_mask(policy, lowest):
    bias = np.zeros((5, 5), "float32")
    bias[2] = lowest
    bias[3, :4] = lowest
    output, weights = _heads(dtype=policy)(X, X, attention_bias=bias, return_attention_scores=True)
    weights = to_numpy(weights).astype("float32")
    assert np.all(np.isfinite(to_numpy(output).astype("float32"))) and np.allclose(weights.sum(-1), 1, atol=0.02)
    np.testing.assert_allclose(weights[:, :, 3], np.broadcast_to([0, 0, 0, 0, 1], (2, 2, 5)), atol=1e-6)


def test_a_score_in_another_precision_leaves_the_results_in_that_of_the_layer():
    layer = _heads(score=layers.AdditiveScore(8), dtype="mixed_bfloat16")
    results = layer(X, X, return_attention_scores=True)
    results += (layers.Attention(layers.GeneralScore(), dtype="mixed_bfloat16")(X, X),)
    assert {keras.backend.standardize_dtype(result.dtype) for result in results} == {"bfloat16"}


class _Doubled(layers.MultiHeadAttention):
    """A user's attention with a step of its own."""

    def compare(self, query, key, visible):
        return 2 * super().compare(query, key, visible)


def test_the_fused_kernel_leaves_alone_what_a_subclass_computes_otherwise():
    layer = _Doubled(2, 4, implementation="fused")
    fused, (dense, _) = layer(X, X), layer(X, X, return_attention_scores=True)
    layer.implementation = "dense"
    np.testing.assert_allclose(to_numpy(fused), to_numpy(layer(X, X)), atol=1e-6)
    np.testing.assert_allclose(to_numpy(dense), to_numpy(layer(X, X)), atol=1e-6)
