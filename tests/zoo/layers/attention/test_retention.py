"""Retention: the recurrence of the paper, its parallel and chunked forms, and the cache."""

import numpy as np
import pytest
from support.layers.contract import random_array, random_mask, randomize, to_numpy
from support.layers.refusals import check_refusals
from support.tiers import nightly_unless

from zoo import layers
from zoo.layers.attention import retention

B, N, D, H, V = 2, 3, 11, 6, 7


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Makes several chunks out of a few positions."""
    monkeypatch.setattr(retention, "CHUNK_SIZE", 4)


def make(**options):
    layer = layers.MultiScaleRetention(N, H, value_dim=V, decays=(0.5, 0.9, 1.0), **options)
    layer.build((B, 19, D), (B, 19, D))
    return randomize(layer)


def _rotate(vector, position):
    rotated = np.zeros(len(vector))
    for i in range(len(vector) // 2):
        angle = position / 10000 ** (2 * i / len(vector))
        even, odd = vector[2 * i], vector[2 * i + 1]
        rotated[2 * i] = even * np.cos(angle) - odd * np.sin(angle)
        rotated[2 * i + 1] = even * np.sin(angle) + odd * np.cos(angle)
    return rotated


def _reference(layer, query, value, first, query_mask, value_mask):
    """Returns output [T, D] and weights [N, T, S] of one sequence, by equation 6 place by place."""
    kernels = {name: to_numpy(getattr(layer, f"{name}_dense").kernel) for name in ("query", "key", "value", "gate")}
    weights, heads = np.zeros((N, len(query), len(value))), np.zeros((len(query), N, V))
    seen = np.zeros(len(query), bool)
    for n, gamma in enumerate(layer.decays):
        size, own = slice(n * H, (n + 1) * H), slice(n * V, (n + 1) * V)
        state, of_values = np.zeros((H, V)), np.zeros((H, len(value)))  # with the values, and with one of each
        for place in range(max(len(value), first + len(query))):
            state, of_values = gamma * state, gamma * of_values
            if place < len(value) and value_mask[place]:
                key = _rotate(value[place] @ kernels["key"][:, size], place)
                state += np.outer(key, value[place] @ kernels["value"][:, own])
                of_values += np.outer(key, np.arange(len(value)) == place)
            t = place - first
            if 0 <= t < len(query) and query_mask[t]:
                rotated = _rotate(query[t] @ kernels["query"][:, size], place) / np.sqrt(H)
                weights[n, t], head = rotated @ of_values, rotated @ state
                heads[t, n] = (head - head.mean()) / np.sqrt(head.var() + layer.epsilon)
                seen[t] = value_mask[: place + 1].any()
    gate = query @ kernels["gate"]
    gate = gate / (1 + np.exp(-gate))
    output = (gate * heads.reshape(len(query), N * V)) @ to_numpy(layer.output_dense.kernel)
    return output * seen[:, None], weights


LENGTHS = [(19, 19, None), (9, 7, 3), (6, 19, None), (19, 6, None), (9, 19, 4), (1, 19, None)]


@pytest.mark.parametrize("lengths", nightly_unless(LENGTHS[:2].__contains__, LENGTHS), ids=str)
def test_all_forms_are_the_recurrence(lengths):
    queries, keys, start = lengths
    layer, query, value = make(), random_array((B, queries, D), 1), random_array((B, keys, D), 2)
    query_mask, value_mask = random_mask((B, queries), 1), random_mask((B, keys), 2)
    value_mask[0, :2] = False
    options = {"query_mask": query_mask, "value_mask": value_mask, "start_index": start}
    first = keys - queries if start is None else start
    expected = [_reference(layer, query[b], value[b], first, query_mask[b], value_mask[b]) for b in range(B)]
    for layer.implementation in ("auto", "dense", "blockwise"):
        output, weights = map(to_numpy, layer(query, value, return_attention_scores=True, **options))
        np.testing.assert_array_equal(to_numpy(layer(query, value, **options)), output)
        for b in range(B):
            np.testing.assert_allclose(weights[b], expected[b][1], atol=5e-6)
            np.testing.assert_allclose(output[b], expected[b][0], atol=5e-5)


def test_errors():
    inputs, bias = np.ones((B, 3, D)), np.zeros((3, 3), "float32")
    check_refusals(
        [
            (lambda: make(score="dot"), "`score`", "'dot'"),
            (lambda: make(dropout=0.1), "`dropout`", "dropout=0.1"),
            (lambda: make(positions=layers.ALiBiPositions()), "`positions`", "ALiBi"),
            (lambda: layers.MultiScaleRetention(2, 4, decays=[0.5]), "`decays`", "2", "0.5"),
            (lambda: make()(inputs, inputs, attention_bias=bias), "`attention_bias`", "MultiScaleRetention"),
        ]
    )
