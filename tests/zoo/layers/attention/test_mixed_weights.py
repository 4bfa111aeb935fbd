"""Talking heads, differential attention and gated outputs: their formulas in loops, by hand, and their paths."""

import math
from functools import partial

import numpy as np
import pytest
from support.layers.contract import random_array, random_mask, randomize, to_numpy
from support.layers.refusals import check_refusals

import zoo
from zoo import layers

B, N, D, T, S, H, V = 2, 3, 11, 5, 7, 13, 17


def make(kind, **options):
    layer = kind(N, H, value_dim=V, use_bias=False, **options)
    layer.build((B, T, D), (B, S, D))
    return randomize(layer)


def _softmax(scores, allowed):
    exponentials = np.array([math.exp(score) if ok else 0.0 for score, ok in zip(scores, allowed, strict=True)])
    return exponentials / (exponentials.sum() or 1.0)


def _projected(layer, query, value):
    """Returns queries [N, T, ·], keys [N, S, ·] and values [N, S, V] of one sequence."""
    names, inputs = ("query", "key", "value"), (query, value, value)
    kernels = [to_numpy(getattr(layer, f"{name}_dense").kernel).astype("float64") for name in names]
    heads = [x @ kernel for x, kernel in zip(inputs, kernels, strict=True)]
    return [each.reshape(len(each), N, -1).swapaxes(0, 1) for each in heads]


def _talking(layer, query, value, allowed):
    queries, keys, values = _projected(layer, query, value)
    of_scores, of_weights = (to_numpy(layer.score_mixing), to_numpy(layer.weight_mixing))
    scores = np.zeros((N, T, S))
    for j, t, s in np.ndindex(N, T, S):
        scores[j, t, s] = sum(of_scores[i, j] * (queries[i, t] @ keys[i, s]) / math.sqrt(H) for i in range(N))
    weights = np.array([[_softmax(scores[j, t], allowed[t]) for t in range(T)] for j in range(N)])
    heads = np.zeros((T, N, V))
    for j, t, i in np.ndindex(N, T, N):
        heads[t, j] += of_weights[i, j] * (weights[i, t] @ values[j])
    return heads, weights


def _differential(layer, query, value, allowed):
    queries, keys, values = _projected(layer, query, value)
    query_1, key_1, query_2, key_2 = (to_numpy(vector).astype("float64") for vector in layer.lambdas)
    subtracted = math.exp(query_1 @ key_1) - math.exp(query_2 @ key_2) + layer.initial_lambda
    weights, heads = np.zeros((N, T, S)), np.zeros((T, N, V))
    for n, t in np.ndindex(N, T):
        for part, sign in ((slice(0, H), 1.0), (slice(H, 2 * H), -subtracted)):
            scores = [queries[n, t, part] @ keys[n, s, part] / math.sqrt(H) for s in range(S)]
            weights[n, t] += sign * _softmax(scores, allowed[t])
        head = weights[n, t] @ values[n]
        heads[t, n] = (1 - layer.initial_lambda) * head / math.sqrt(np.mean(head**2) + layer.epsilon)
    return heads, weights


CASES = {
    "talking": (layers.TalkingHeadsAttention, _talking, {}),
    "differential": (layers.DifferentialAttention, _differential, {"initial_lambda": 0.3, "epsilon": 1e-3}),
    "differential, gated": (layers.DifferentialAttention, _differential, {"output_gate": True}),
}


@pytest.mark.parametrize("name", CASES)
def test_against_loops(name):
    kind, reference, options = CASES[name]
    layer, mask = make(kind, **options), random_mask((B, S), 3)
    query, value = random_array((B, T, D), 1), random_array((B, S, D), 2)
    mask[1] = False
    expected = []
    for b in range(B):
        allowed = mask[b] & (np.arange(S) <= np.arange(T)[:, None] + S - T)
        heads, weights = reference(layer, query[b].astype("float64"), value[b].astype("float64"), allowed)
        heads = heads.reshape(T, N * V)
        if layer.output_gate:
            heads = heads / (1 + np.exp(-query[b] @ to_numpy(layer.gate_dense.kernel)))
        expected.append((heads @ to_numpy(layer.output_dense.kernel), weights))
    for layer.implementation in ("dense", "blockwise", "fused"):
        results = layer(query, value, value_mask=mask, use_causal_mask=True, return_attention_scores=True)
        for found, whole, atol in zip(results, zip(*expected, strict=True), (5e-5, 5e-6), strict=True):
            np.testing.assert_allclose(to_numpy(found), np.array(whole), atol=atol)


def test_new_talking_heads_are_multi_head_attention():
    inputs = random_array((B, T, D), 1)
    talking, plain = layers.TalkingHeadsAttention(N, H), layers.MultiHeadAttention(N, H)
    for layer in (talking, plain):
        layer.build(inputs.shape, inputs.shape)
    plain_weights = {weight.path.split("/", 1)[1]: weight for weight in plain.weights}
    for weight in talking.weights:
        name = weight.path.split("/", 1)[1]
        if name in plain_weights:
            plain_weights[name].assign(weight)
    np.testing.assert_allclose(to_numpy(talking(inputs, inputs)), to_numpy(plain(inputs, inputs)), atol=1e-6)


def test_differential_attention_by_hand():
    # One head, p_k = 1, λ = 1/2: scores (ln 3, 0) and (0, 0) → (3/4, 1/4) − (1/2, 1/2) / 2 = (1/2, 0).
    layer = layers.DifferentialAttention(1, 1, value_dim=2, initial_lambda=0.5, epsilon=0.0)
    layer.build((1, 1, 2), (1, 2, 2))
    kernels = {"query": [[math.log(3), 0], [0, 0]], "key": [[1, 1], [0, 0]], "value": np.eye(2), "output": np.eye(2)}
    for name, kernel in kernels.items():
        getattr(layer, f"{name}_dense").kernel.assign(np.array(kernel, "float32"))
    for vector in layer.lambdas:
        vector.assign(np.zeros(1))
    value = np.array([[[1, 4], [0, 8]]], "float32")
    output, weights = layer(np.ones((1, 1, 2), "float32"), value, return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(weights)[0, 0], [[0.5, 0.0]], atol=1e-6)
    head = np.array([0.5, 2.0])
    expected = 0.5 * head / math.sqrt((0.25 + 4.0) / 2)
    np.testing.assert_allclose(to_numpy(output)[0, 0], expected, atol=1e-5)


def test_a_trace_shows_both_softmaxes_and_their_difference():
    layer, inputs = make(layers.DifferentialAttention), random_array((1, T, D), 1)
    trace = zoo.trace(layer, inputs, inputs)
    _, expected = layer(inputs, inputs, return_attention_scores=True)
    np.testing.assert_allclose(trace["weights"], to_numpy(expected), atol=1e-6)
    subtracted = to_numpy(layer.subtracted_part())
    difference = trace["weights_1"] - subtracted * trace["weights_2"]
    np.testing.assert_allclose(difference, to_numpy(expected), atol=1e-6)


def test_a_closed_gate_says_nothing():
    layer = layers.MultiHeadAttention(N, H, output_gate=True)
    layer.build((B, T, D), (B, S, D))
    bias = layer.output_dense.bias
    bias.assign(np.arange(D, dtype="float32"))
    layer.gate_dense.bias.assign(np.full(N * H, -1e4, "float32"))
    output = to_numpy(layer(random_array((B, T, D), 1), random_array((B, S, D), 2)))
    np.testing.assert_array_equal(output, np.broadcast_to(np.arange(D), output.shape))


def test_errors():
    differential = partial(layers.DifferentialAttention, 2, 4)
    check_refusals(
        [
            (lambda: differential(initial_lambda=1.0), "`initial_lambda`", "initial_lambda=1.0"),
            (lambda: differential(query_dim=5), "`query_dim`", "DifferentialAttention"),
            (lambda: differential(share_score=False), "`share_score`", "DifferentialAttention"),
            (lambda: layers.GatedLinearAttention(2, 4, output_gate=True), "gate", "output_gate=True"),
        ]
    )
