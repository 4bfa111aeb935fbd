"""Retention: the recurrence of the paper, its parallel and chunked forms, and the cache."""

import numpy as np
import pytest
from keras import ops
from support.layers.contract import compiled, graph_and_xla, random_array, random_mask, randomize, to_numpy

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


LENGTHS = [
    *((19, 19, None), (9, 7, 3)),
    *(pytest.param(each, marks=pytest.mark.nightly) for each in ((6, 19, None), (19, 6, None), (9, 19, 4), (1, 19, None))),
]


@pytest.mark.parametrize("implementation", ["auto", "dense", "blockwise"])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_all_forms_are_the_recurrence(implementation, lengths):
    queries, keys, start = lengths
    layer, query, value = (
        make(implementation=implementation),
        random_array((B, queries, D), 1),
        random_array((B, keys, D), 2),
    )
    query_mask, value_mask = random_mask((B, queries), 1), random_mask((B, keys), 2)
    value_mask[0, :2] = False
    options = {"query_mask": query_mask, "value_mask": value_mask, "start_index": start}
    output, weights = map(to_numpy, layer(query, value, return_attention_scores=True, **options))
    np.testing.assert_array_equal(to_numpy(layer(query, value, **options)), output)
    for b in range(B):
        first = keys - queries if start is None else start
        expected, expected_weights = _reference(layer, query[b], value[b], first, query_mask[b], value_mask[b])
        np.testing.assert_allclose(weights[b], expected_weights, atol=5e-6)
        np.testing.assert_allclose(output[b], expected, atol=5e-5)


@graph_and_xla
def test_graph_with_gradients(xla):
    layer, inputs = make(), random_array((B, 19, D), 1)
    expected = to_numpy(layer(inputs, inputs))
    np.testing.assert_allclose(
        to_numpy(compiled(lambda x: layer(x, x), xla)(ops.convert_to_tensor(inputs))), expected, atol=2e-5
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make(score="dot"), "takes no `score`"),
        (lambda: make(dropout=0.1), "takes no `dropout`"),
        (lambda: make(positions=layers.ALiBiPositions()), "must act on queries and keys"),
        (lambda: layers.MultiScaleRetention(2, 4, decays=[0.5]), r"`decays` must be 2 numbers in \(0, 1\]"),
        (
            lambda: make()(np.ones((B, 3, D)), np.ones((B, 3, D)), attention_bias=np.zeros((3, 3), "float32")),
            "has no softmax: it takes no `attention_bias`",
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
