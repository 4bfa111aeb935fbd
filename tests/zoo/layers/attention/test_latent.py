"""Multi-head latent attention: the paper's equations in loops, both forms, and the cache."""

import math
from functools import partial

import numpy as np
import pytest
from keras import ops
from support.layers.contract import random_array, random_mask, randomize, to_numpy
from support.layers.references import latents
from support.layers.refusals import check_refusals

from zoo import layers

B, N, D, T, S, H, R, V, C = 2, 3, 11, 5, 7, 13, 6, 17, 19


def make(**options):
    layer = layers.MultiHeadLatentAttention(N, H + R, **{"latent_dim": C, "rope_dim": R, "value_dim": V, **options})
    layer.build((B, T, D), (B, S, D))
    return randomize(layer)


def _rotated(vector, position):
    turned = []
    for i in range(0, len(vector), 2):
        turn = complex(math.cos(angle := position / 10000 ** (i / len(vector))), math.sin(angle))
        pair = complex(vector[i], vector[i + 1]) * turn
        turned += [pair.real, pair.imag]
    return turned


def _reference(layer, query, value, allowed, first):
    """Returns output [T, D] and weights [N, T, S] of one sequence, key by key."""
    kernels = {name: to_numpy(getattr(layer, f"{name}_dense").kernel) for name in ("query", "key", "value", "rope")}
    latent, shared = latents(layer.latent_dense, layer.memory_norm, value), value @ kernels["rope"]
    if layer.query_latent_dense is not None:
        query = latents(layer.query_latent_dense, layer.query_latent_norm, query)
    projected = query @ kernels["query"]
    weights, heads = np.zeros((N, len(query), len(value))), np.zeros((len(query), N * V))
    for n, t in np.ndindex(N, len(query)):
        head = projected[t, n * (H + R) : (n + 1) * (H + R)]
        head = np.array([*head[:H], *_rotated(head[H:], first + t)])
        scores = np.full(len(value), -np.inf)
        for s in range(len(value)):
            key = [*(latent[s] @ kernels["key"][:, n * H : (n + 1) * H]), *_rotated(shared[s], s)]
            if allowed[t, s]:
                scores[s] = head @ np.array(key) / math.sqrt(H + R)
        if allowed[t].any():
            weights[n, t] = np.exp(scores - scores.max())
            weights[n, t] /= weights[n, t].sum()
        for s in range(len(value)):
            heads[t, n * V : (n + 1) * V] += weights[n, t, s] * (latent[s] @ kernels["value"][:, n * V : (n + 1) * V])
    return heads @ to_numpy(layer.output_dense.kernel), weights


@pytest.mark.parametrize("absorbs", [False, True], ids=["expanded", "absorbed"])
@pytest.mark.parametrize("options", [{}, {"query_latent_dim": 5}, {"latent_norm": False}], ids=str)
def test_both_forms_are_the_formula(options, absorbs, monkeypatch):
    layer, query, value = make(**options), random_array((B, T, D), 1), random_array((B, S, D), 2)
    monkeypatch.setattr(layer, "_compares_latent", lambda *inputs: absorbs)
    mask = random_mask((B, S), 3)
    mask[1] = False
    results = layer(query, value, value_mask=mask, use_causal_mask=True, return_attention_scores=True)
    for b in range(B):
        allowed = mask[b] & (np.arange(S) <= np.arange(T)[:, None] + S - T)
        expected = _reference(layer, query[b].astype("float64"), value[b].astype("float64"), allowed, S - T)
        for result, reference in zip(results, expected, strict=True):
            np.testing.assert_allclose(to_numpy(result)[b], reference, atol=2e-5)


def test_by_hand():
    # One head, p_k = 4 with two rotary features, C = p_v = 1, no norm; everything at position 0 but the second key.
    layer = layers.MultiHeadLatentAttention(1, 4, latent_dim=1, rope_dim=2, value_dim=1, latent_norm=False)
    layer.build((1, 1, 2), (1, 2, 2))
    names = ("latent", "rope", "key", "value", "query", "output")
    # c = x₁, k^R = (x₂, 0), k^C = (c, 0), v = 8 c, q = (2 ln 3 · x₁, 0, 0, 0): the scores are ln 3 · c.
    kernels = ([[1], [0]], [[0, 0], [1, 0]], [[1, 0]], [[8]], [[2 * math.log(3), 0, 0, 0], [0] * 4], [[1, 0]])
    for name, kernel in zip(names, kernels, strict=True):
        getattr(layer, f"{name}_dense").kernel.assign(np.array(kernel, "float32"))
    inputs = np.array([[[1, 0], [0, 5]]], "float32")
    output, weights = layer(inputs[:, :1], inputs, return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(weights)[0, 0], [[0.75, 0.25]], atol=1e-6)
    np.testing.assert_allclose(to_numpy(output)[0], [[6.0, 0.0]], atol=1e-5)


def test_few_queries_attend_to_latent_vectors():
    layer = make()
    query, memory = ops.zeros((B, N, 1, H + R)), layer.project_memory(ops.zeros((B, 97, D)))
    assert memory["key"].shape == (B, 1, 97, R) and memory["value"].shape == (B, 1, 97, C)
    assert layer._compares_latent(query, memory) and not layer._compares_latent(ops.zeros((B, N, 97, H + R)), memory)
    assert make(latent_dim=3)._compares_latent(ops.zeros((B, N, 97, H + R)), memory), (
        "so small a latent vector always pays"
    )


def test_the_cache_holds_latent_vectors_alone():
    layer, inputs = make(), random_array((B, S, D), 1)
    expected = to_numpy(layer(inputs, inputs, use_causal_mask=True))
    cache = layer.create_cache(B, S + 2)
    assert {name: tuple(cache[name].shape) for name in ("key", "value")} == {
        "key": (B, 1, S + 2, R),
        "value": (B, 1, S + 2, C),
    }
    found = []
    for position in range(S):
        row = inputs[:, position : position + 1]
        output, cache = layer(row, row, cache=cache)
        found.append(to_numpy(output))
    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, atol=5e-6)


def test_implementations_agree():
    inputs, query = random_array((B, S, D), 1), random_array((B, 1, D), 2)
    layer = make()
    for each in (inputs, query):
        layer.implementation = "auto"
        expected = to_numpy(layer(each, inputs))
        for layer.implementation in ("blockwise", "fused", "dense"):
            np.testing.assert_allclose(to_numpy(layer(each, inputs)), expected, atol=5e-6)


def test_a_quantised_layer_expands_its_keys(new_garbage_alone):
    layer, inputs = make(), random_array((B, 1, D), 1)
    expected = to_numpy(layer(inputs, inputs))
    for dense in (layer.key_dense, layer.value_dense):
        dense.quantize("int8")
    np.testing.assert_allclose(to_numpy(layer(inputs, inputs)), expected, atol=0.1 * np.abs(expected).max())


def test_what_is_overridden_gets_keys_and_values():
    class Doubled(layers.MultiHeadLatentAttention):
        def compare_heads(self, query, key):
            assert key.shape[1:] == (N, 97, H + R)
            return 2 * super().compare_heads(query, key)

    layer = Doubled(N, H + R, latent_dim=C, rope_dim=R)
    assert layer(random_array((B, 1, D), 1), random_array((B, 97, D), 2)).shape == (B, 1, D)


def test_matrices_of_heads():
    kernels = make().head_kernels()
    shapes = {"query": (N, D, H + R), "key": (N, C, H), "value": (N, C, V), "output": (N, V, D)}
    assert {name: kernel.shape for name, kernel in kernels.items()} == shapes


def test_errors():
    check_refusals(
        (partial(make, **options), *words)
        for options, *words in (
            ({"rope_dim": 5}, "`rope_dim`", "rope_dim=5", "key_dim=19"),
            ({"rope_dim": 20}, "`rope_dim`", "rope_dim=20", "key_dim=19"),
            ({"latent_dim": 0}, "`latent_dim`", "latent_dim=0"),
            ({"score": "dot"}, "`score`", "MultiHeadLatentAttention"),
            ({"qk_norm": True}, "`qk_norm`", "MultiHeadLatentAttention"),
            ({"positions": None}, "`positions`", "RotaryPositions", "None"),
            ({"positions": layers.ALiBiPositions()}, "`positions`", "RotaryPositions", "ALiBi"),
        )
    )
