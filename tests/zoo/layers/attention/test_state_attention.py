"""Gated linear attention and the delta rule: the recurrences of the papers, all forms of each, and the cache."""

from functools import partial

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.contract import compiled, gradients, graph_and_xla, random_array, random_mask, randomize, to_numpy
from support.layers.refusals import check_refusals
from support.tiers import nightly_unless

from zoo import layers
from zoo.layers.attention import delta_rule, gated_linear, retention

B, N, D, H, V = 2, 3, 11, 5, 7
MAKE = {
    "gated": lambda **options: layers.GatedLinearAttention(
        N, H, value_dim=V, decay_rank=2, decay_temperature=1.5, epsilon=1e-3, **options
    ),
    "delta": lambda **options: layers.DeltaRuleAttention(N, H, value_dim=V, epsilon=1e-3, **options),
}
ALL = {
    **MAKE,
    "retention": lambda **options: layers.MultiScaleRetention(N, 6, value_dim=V, decays=(0.5, 0.9, 1.0), **options),
}
both = pytest.mark.parametrize("kind", MAKE)
every = pytest.mark.parametrize("kind", ALL)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Makes several chunks out of a few positions."""
    monkeypatch.setattr(gated_linear, "CHUNK_SIZE", 4)
    monkeypatch.setattr(delta_rule, "CHUNK_SIZE", 4)
    monkeypatch.setattr(retention, "CHUNK_SIZE", 4)


def make(kind, **options):
    layer = ALL[kind](**options)
    layer.build((B, 19, D), (B, 19, D))
    return randomize(layer)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _features(x):
    x = x * _sigmoid(x)
    return x / np.sqrt(np.sum(x**2) + 1e-6)


def _reference(layer, query, value, first, query_mask, value_mask):
    """Returns output [T, D] and weights [N, T, S] of one sequence, by the recurrences of the papers, place by place."""
    kernels = {name: to_numpy(getattr(layer, f"{name}_dense").kernel) for name in ("query", "key", "value", "output")}
    is_delta = isinstance(layer, layers.DeltaRuleAttention)
    if is_delta:
        beta = _sigmoid(value @ to_numpy(layer.beta_dense.kernel))
    else:
        gates = value @ to_numpy(layer.decay_input_dense.kernel) @ to_numpy(layer.decay_dense.kernel)
        alpha = _sigmoid(gates + to_numpy(layer.decay_dense.bias)) ** (1 / 1.5)
    weights, heads = np.zeros((N, len(query), len(value))), np.zeros((len(query), N, V))
    seen = np.zeros(len(query), bool)
    for n in range(N):
        size, own = slice(n * H, (n + 1) * H), slice(n * V, (n + 1) * V)
        # S with the values, and with one of each key in their place.
        states = [np.zeros((H, V)), np.zeros((H, len(value)))]
        for place in range(max(len(value), first + len(query))):
            if place < len(value) and value_mask[place]:
                key = value[place] @ kernels["key"][:, size]
                new = [value[place] @ kernels["value"][:, own], np.arange(len(value)) == place]
                if is_delta:
                    key = _features(key)
                    new = [beta[place, n] * (v - state.T @ key) for v, state in zip(new, states, strict=True)]
                else:
                    states = [alpha[place, size, None] * state for state in states]
                states = [state + np.outer(key, v) for v, state in zip(new, states, strict=True)]
            t = place - first
            if 0 <= t < len(query) and query_mask[t]:
                projected = query[t] @ kernels["query"][:, size]
                projected = (_features(projected) if is_delta else projected) / np.sqrt(H)
                head, weights[n, t] = states[0].T @ projected, states[1].T @ projected
                centred = head if is_delta else head - head.mean()
                heads[t, n] = centred / np.sqrt(np.mean(centred**2) + layer.epsilon)
                seen[t] = value_mask[: place + 1].any()
    heads = heads.reshape(len(query), N * V)
    if not is_delta:
        gate = query @ to_numpy(layer.gate_dense.kernel)
        heads = heads * gate * _sigmoid(gate)
    return heads @ kernels["output"] * seen[:, None], weights


LENGTHS = [(19, 19, None), (9, 7, 3), (6, 19, None), (19, 6, None), (9, 19, 4), (1, 19, None)]


@both
@pytest.mark.parametrize("lengths", nightly_unless(LENGTHS[:2].__contains__, LENGTHS), ids=str)
def test_all_forms_are_the_recurrence(kind, lengths):
    queries, keys, start = lengths
    layer, query, value = make(kind), random_array((B, queries, D), 1), random_array((B, keys, D), 2)
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


@every
def test_gradients_of_chunks_are_those_of_pairs(kind):
    found = []
    for implementation in ("auto", "dense"):
        layer, mask = make(kind, implementation=implementation), random_mask((B, 19), 3)
        mask[0] = False
        variable = keras.Variable(random_array((B, 19, D), 1))

        def loss(layer=layer, variable=variable, mask=mask):
            inputs = ops.convert_to_tensor(variable)
            return ops.sum(ops.sin(layer(inputs, inputs, value_mask=mask)))

        found.append(gradients(loss, [variable, *layer.trainable_variables]))
    for result, expected in zip(*found, strict=True):
        assert np.all(np.isfinite(result))
        np.testing.assert_allclose(result, expected, atol=2e-4 * max(1.0, np.abs(expected).max()))


@every
def test_prefill_and_steps_equal_the_full_pass(kind):
    layer, inputs, mask = make(kind), random_array((B, 13, D), 1), np.ones((B, 17), bool)
    mask[0, :2] = mask[1, 5] = False
    expected = to_numpy(layer(inputs, inputs, value_mask=mask[:, :13]))
    cache, start = layer.create_cache(B, 17), 0
    for length in (6, 1, 1, 5):
        part, start = slice(start, start + length), start + length
        given = mask if length > 1 else mask[:, part]  # of the capacity, or of the new positions
        output, cache = layer(inputs[:, part], inputs[:, part], value_mask=given, cache=cache)
        np.testing.assert_allclose(to_numpy(output), expected[:, part], atol=2e-5)
        assert int(cache["index"]) == start and cache["state"].shape == (B, N, layer.key_dim, V)


@pytest.mark.nightly  # the contract has a graph of unknown sizes for each of them, too
@every
@graph_and_xla
def test_graph_of_several_chunks(kind, xla):
    layer, inputs = make(kind), random_array((B, 19, D), 1)
    expected = to_numpy(layer(inputs, inputs))
    function = compiled(lambda x: layer(x, x), xla)
    np.testing.assert_allclose(to_numpy(function(ops.convert_to_tensor(inputs))), expected, atol=2e-5)


def test_strong_gates_forget_all_and_stay_finite():
    layer = make("gated")
    layer.decay_dense.kernel.assign(np.zeros_like(layer.decay_dense.kernel))
    layer.decay_dense.bias.assign(np.full_like(layer.decay_dense.bias, -1e4))
    inputs = random_array((B, 19, D), 1)
    _, weights = layer(inputs, inputs, return_attention_scores=True)
    np.testing.assert_array_equal(to_numpy(weights) * (1 - np.eye(19)), 0.0)
    variable = keras.Variable(inputs)
    (gradient,) = gradients(lambda: ops.sum(layer(ops.convert_to_tensor(variable), inputs)), [variable])
    assert np.all(np.isfinite(gradient))


def test_the_delta_rule_by_hand():
    # One head of sizes 2 and 2: a key that comes again with β = 1 has its value replaced, not added.
    layer = layers.DeltaRuleAttention(1, 2)
    layer.build((1, 3, 4), (1, 3, 4))
    key = np.array([[50, 0], [0, 50], [0, 0], [0, 0]])  # swish and length leave (1, 0) and (0, 1)
    value, beta = np.array([[0, 0], [0, 0], [1, 0], [0, 1]]), np.array([[50], [50], [0], [0]])
    for name, kernel in (("query", key), ("key", key), ("value", value), ("beta", beta), ("output", np.eye(2, 4))):
        getattr(layer, f"{name}_dense").kernel.assign(kernel.astype("float32"))
    # Keys a, b, a with values (1, 0), (0, 1), (0, 1); each position asks for its own key.
    inputs = np.array([[[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1]]], "float32")
    output, weights = layer(inputs, inputs, return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(weights)[0, 0] * np.sqrt(2), np.eye(3), atol=1e-5)
    half = np.sqrt(2)  # the norm of (1, 0) / √2
    np.testing.assert_allclose(to_numpy(output)[0, :, :2], [[half, 0], [0, half], [0, half]], atol=1e-4)


def test_gates_by_hand():
    # One head of size 1, α = ½ at each position, q = k = 1: weights ½^(t − s).
    layer = layers.GatedLinearAttention(1, 1, decay_rank=1, decay_temperature=1.0)
    layer.build((1, 3, 1), (1, 3, 1))
    for dense, number in ((layer.query_dense, 1), (layer.key_dense, 1), (layer.decay_dense, 0)):
        dense.kernel.assign([[float(number)]])
    _, weights = layer(np.ones((1, 3, 1)), np.ones((1, 3, 1)), return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(weights)[0, 0], [[1, 0, 0], [0.5, 1, 0], [0.25, 0.5, 1]], atol=1e-6)


def test_errors():
    inputs, mask = np.ones((2, 3, D)), np.ones((2, 3, 3), bool)
    check_refusals(
        [
            (lambda: make("gated", score="dot"), "`score`", "GatedLinearAttention", "'dot'"),
            (lambda: make("delta", dropout=0.1), "`dropout`", "DeltaRuleAttention", "dropout=0.1"),
            (lambda: make("delta", logit_softcap=2.0), "`logit_softcap`", "DeltaRuleAttention", "2.0"),
            (lambda: make("delta")(inputs, inputs, attention_mask=mask), "`attention_mask`", "`value_mask`"),
            (lambda: make("delta", positions=layers.ALiBiPositions()), "`positions`", "ALiBi"),
            (lambda: layers.GatedLinearAttention(1, 1, decay_temperature=0), "`decay_temperature`", "0"),
            (lambda: layers.GatedLinearAttention(1, 1, decay_rank=0), "`decay_rank`", "decay_rank=0"),
        ]
    )


@every
def test_what_a_subclass_overrides_wins_over_states(kind):
    base, inputs, changes = type(make(kind)), random_array((B, 7, D), 1), []

    def override(method):
        def changed(self, *arguments):
            changes.append(method)
            return getattr(base, method)(self, *arguments)

        return type(f"Changed{base.__name__}", (base,), {method: changed})

    for method in ("compare", "normalize", "weighted_sum", "sum_heads", "attend_rows"):
        layer = override(method).from_config(make(kind).get_config())
        layer(inputs, inputs)
        assert method in changes
        check_refusals([(partial(layer.create_cache, B), "compare", "cache")])


def test_a_state_of_ones_own_wins_over_weights_above_it():
    class Newest(layers.MultiScaleRetention):
        def run(self, query, key, value, visibility, start, before):
            heads, state = super().run(query, key, value, visibility, start, before)
            return -heads, state

    inputs, layer, other = random_array((B, 7, D), 1), Newest(N, 6), layers.MultiScaleRetention(N, 6)
    layer.build(inputs.shape, inputs.shape)
    other.build(inputs.shape, inputs.shape)
    other.set_weights(layer.get_weights())
    np.testing.assert_allclose(to_numpy(layer(inputs, inputs)), -to_numpy(other(inputs, inputs)), atol=1e-6)
    assert layer.create_cache(B)
