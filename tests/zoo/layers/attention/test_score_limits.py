"""Normalised queries and keys, and capped scores: by hand, on every path, in half precision, and in traces."""

from functools import partial

import keras
import numpy as np
import pytest
from support.layers.contract import random_array, to_numpy
from support.layers.refusals import check_refusals

import zoo
from zoo import layers
from zoo.layers.execution.running_softmax import has_running_softmax

B, T, S, D = 2, 5, 7, 11


def _layer(kind=layers.MultiHeadAttention, seed=3, **options):
    keras.utils.set_random_seed(seed)
    sizes = (4, 2, 6) if kind is layers.GroupedQueryAttention else (4, 6)
    return kind(*sizes, **options)


def test_a_cap_by_hand():
    layer = layers.MultiHeadAttention(1, 1, score="dot", use_bias=False, output_projection=False, logit_softcap=2.0)
    layer.build((1, 1, 1), (1, 2, 1))
    layer.set_weights([np.ones((1, 1))] * 3)
    query, value = np.array([[[1.0]]], "float32"), np.array([[[1.0], [5.0]]], "float32")
    _, weights = layer(query, value, return_attention_scores=True, attention_bias=np.array([[0.0, 0.5]], "float32"))
    scores = 2 * np.tanh(np.array([1.0, 5.0]) / 2) + [0.0, 0.5]  # the bias is added after the cap
    np.testing.assert_allclose(to_numpy(weights)[0, 0, 0], np.exp(scores) / np.exp(scores).sum(), rtol=1e-6)


@pytest.mark.parametrize("positions", [layers.ALiBiPositions, layers.ShawRelativePositions])
def test_biases_of_positions_are_added_after_the_cap(positions):
    make = positions if positions is layers.ALiBiPositions else lambda: positions(2)
    inputs = random_array((B, T, D), 1) * 9
    weights = {}
    for cap in (1e-4, None):
        layer = _layer(positions=make(), logit_softcap=cap)
        _, weights[cap] = layer(inputs, inputs, return_attention_scores=True)
    scores = np.log(to_numpy(weights[1e-4]))
    if positions is layers.ALiBiPositions:
        slopes = np.array([2.0 ** (-2 * (head + 1)) for head in range(4)])
        distances = np.abs(np.arange(T)[:, None] - np.arange(T))
        expected = -slopes[:, None, None] * distances
        expected = np.broadcast_to(expected - np.log(np.exp(expected).sum(-1, keepdims=True)), scores.shape)
    else:
        expected = np.full(scores.shape, -np.log(T))
    np.testing.assert_allclose(scores, expected, atol=3e-4)


def test_normalised_heads_do_not_depend_on_the_size_of_the_inputs():
    query, value = random_array((B, T, D), 1), random_array((B, S, D), 2)
    layer = _layer(qk_norm=True, use_bias=False, positions=layers.RotaryPositions())
    _, weights = layer(query, value, return_attention_scores=True)
    _, large = layer(1000 * query, 0.5 * value, return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(large), to_numpy(weights), atol=1e-4)
    heads = to_numpy(layer.project_query(query))
    np.testing.assert_allclose(np.mean(heads**2, axis=-1), 1.0, atol=1e-3)


@pytest.mark.parametrize(
    "kind", [pytest.param(layers.MultiHeadAttention, marks=pytest.mark.nightly), layers.GroupedQueryAttention]
)
def test_all_paths_agree(kind):
    query, value = random_array((B, T, D), 1) * 9, random_array((B, S, D), 2)
    layer, outputs = _layer(kind, qk_norm=True, logit_softcap=0.5), {}
    for layer.implementation in ("dense", "blockwise", "fused"):
        outputs[layer.implementation] = to_numpy(layer(query, value, use_causal_mask=True))
        path = layer.explain_execution(query, value, use_causal_mask=True).path
        tiles = "tiles" if has_running_softmax() else "chunks"
        assert path == {"blockwise": tiles}.get(layer.implementation, "dense")
    np.testing.assert_allclose(outputs["blockwise"], outputs["dense"], atol=2e-6)
    np.testing.assert_allclose(outputs["fused"], outputs["dense"], atol=2e-6)
    plain = to_numpy(_layer(kind, qk_norm=True)(query, value, use_causal_mask=True))
    assert np.abs(plain - outputs["dense"]).max() > 1e-3


def test_fused_kernels_take_normalised_queries_but_no_cap():
    query = random_array((B, T, D), 1)
    path = {
        name: _layer(implementation="fused", **options).explain_execution(query, query).path
        for name, options in {"norm": {"qk_norm": True}, "cap": {"logit_softcap": 5.0}}.items()
    }
    assert path == {"norm": "fused", "cap": "dense"}


def test_huge_scores_are_capped_in_float16():
    query = random_array((B, T, D), 1) * 1e3
    output, weights = _layer(logit_softcap=1.0, dtype="mixed_float16")(query, query, return_attention_scores=True)
    assert np.all(np.isfinite(to_numpy(output)))
    assert to_numpy(weights).min() >= np.exp(-2) / T * 0.99


def test_a_trace_shows_both():
    query = random_array((1, 3, D), 1)
    layer = _layer(qk_norm=True, logit_softcap=5.0, positions=layers.RotaryPositions())
    layer(query, query)
    text = str(zoo.trace(layer, query, query))
    assert "RMSNorm(query W_q + b_q)" in text and "RMSNorm(key W_k + b_k)" in text
    assert "5 · tanh" not in text and "c · tanh(scaled_scores / c)" in text


def test_a_cap_is_a_positive_number():
    caps = (0, -1.0, float("inf"), float("nan"), True, "5")
    check_refusals(
        (partial(layers.MultiHeadAttention, 2, 3, logit_softcap=cap), "`logit_softcap`", f"logit_softcap={cap!r}")
        for cap in caps
    )
