"""Lightweight and dynamic convolution, average attention and SSRU: loops, hand-worked examples, caches, errors."""

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.contract import compiled, gradients, graph_and_xla, random_array, randomize, to_numpy
from support.layers.refusals import check_refusals
from support.tiers import nightly_unless

from zoo import layers
from zoo.layers.recurrent import ssru

B, T, D, N = 2, 7, 6, 3
MAKE = {
    "lightweight": lambda **options: layers.LightweightConvolution(N, 4, **options),
    "dynamic": lambda **options: layers.DynamicConvolution(N, 3, **options),
    "causal lightweight": lambda **options: layers.LightweightConvolution(N, 3, padding="causal", **options),
    "causal dynamic": lambda **options: layers.DynamicConvolution(N, 5, padding="causal", **options),
    "average": lambda **options: layers.AverageAttention(11, **options),
    "average without network": lambda **options: layers.AverageAttention(**options),
    "ssru": lambda **options: layers.SSRU(**options),
}
CAUSAL = [kind for kind in MAKE if kind not in ("lightweight", "dynamic")]
MASK = np.array([[True, True, False, True, True, True, False], [False] * 7])


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Makes several chunks out of a few positions."""
    monkeypatch.setattr(ssru, "CHUNK_SIZE", 3)


def make(kind, **options):
    layer = MAKE[kind](**options)
    layer.build((B, T, D))
    return randomize(layer)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _dense(dense, row):
    return row @ to_numpy(dense.kernel).astype("float64") + (0.0 if dense.bias is None else to_numpy(dense.bias))


def _convolution(layer, rows, real):
    gated = [_dense(layer.input_dense, row) for row in rows]
    gated = [row[:D] * _sigmoid(row[D:]) * ok for row, ok in zip(gated, real, strict=True)]
    left = layer.width - 1 if layer.padding == "causal" else layer.width // 2
    outputs, weights = np.zeros((T, D)), np.zeros((N, T, T))
    for t in range(T):
        logits = _dense(layer.weight_dense, gated[t]) if hasattr(layer, "weight_dense") else None
        logits = to_numpy(layer.position_weights) if logits is None else logits.reshape(N, layer.width)
        mixed = np.zeros(D)
        for c in range(D):
            head = c // (D // N)
            kernel = np.exp(logits[head]) / np.exp(logits[head]).sum()
            for j in range(layer.width):
                s = t + j - left
                if 0 <= s < T:
                    mixed[c] += kernel[j] * gated[s][c]
                    weights[head, t, s] = kernel[j] * real[s] * real[t]
        outputs[t] = _dense(layer.output_dense, mixed) * real[t]
    return outputs, weights


def _average(layer, rows, real):
    outputs, weights = np.zeros((T, D)), np.zeros((1, T, T))
    for t in range(T):
        earlier = [s for s in range(t + 1) if real[s]]
        if not real[t]:
            continue
        mean = sum(rows[s] for s in earlier) / len(earlier)
        weights[0, t, earlier] = 1 / len(earlier)
        if layer.feed_forward is not None:
            hidden = np.maximum(_dense(layer.feed_forward.intermediate_dense, mean), 0.0)
            mean = _dense(layer.feed_forward.output_dense, hidden)
        gates = _sigmoid(_dense(layer.gate_dense, np.concatenate([rows[t], mean])))
        outputs[t] = gates[:D] * rows[t] + gates[D:] * mean
    return outputs, weights


def _ssru(layer, rows, real):
    state, outputs = np.zeros(D), np.zeros((T, D))
    for t in range(T):
        if real[t]:
            forget = _sigmoid(_dense(layer.forget_dense, rows[t]))
            state = forget * state + (1 - forget) * _dense(layer.input_dense, rows[t])
            outputs[t] = np.maximum(state, 0.0)
    return (outputs,)


def reference(layer, rows, real):
    """Returns output [T, D] and weights [N, T, T] of one sequence, position by position."""
    kinds = {layers.AverageAttention: _average, layers.SSRU: _ssru}
    return kinds.get(type(layer), _convolution)(layer, rows.astype("float64"), real)


@pytest.mark.parametrize("kind", MAKE)
def test_against_loops(kind):
    layer, inputs = make(kind), random_array((B, T, D), 1)
    for mask in (None, MASK):
        options = {"return_attention_scores": True} if layer.has_weights else {}
        results = layer(inputs, inputs, value_mask=mask, **options)
        results = results if layer.has_weights else (results,)
        for b in range(B):
            expected = reference(layer, inputs[b], np.ones(T, bool) if mask is None else mask[b])
            for result, each in zip(results, expected, strict=True):
                np.testing.assert_allclose(to_numpy(result)[b], each, atol=5e-6)


@pytest.mark.parametrize("kind", CAUSAL)
def test_steps_equal_the_full_pass(kind):
    layer, inputs = make(kind), random_array((B, T, D), 1)
    for mask in (None, np.pad(MASK, ((0, 0), (0, 2)), constant_values=True)):
        options = {} if mask is None else {"value_mask": mask[:, :T]}
        expected = to_numpy(layer(inputs, inputs, use_causal_mask=True, **options))
        cache, start = layer.create_cache(B, T + 2), 0
        shapes = [tuple(tensor.shape) for tensor in cache.values()]
        for length in (0, 3, 0, 1, 1, 2):
            part, start = slice(start, start + length), start + length
            given = mask if mask is None or length > 1 else mask[:, part]  # of the capacity, or of the new positions
            output, cache = layer(inputs[:, part], value_mask=given, cache=cache, use_causal_mask=True)
            np.testing.assert_allclose(to_numpy(output), expected[:, part], atol=5e-6)
            assert [tuple(tensor.shape) for tensor in cache.values()] == shapes and int(cache["index"]) == start


@pytest.mark.nightly  # the contract has a graph of unknown sizes for each of them, too
@pytest.mark.parametrize("kind", ["lightweight", "causal dynamic", "average", "ssru"])
@graph_and_xla
def test_graph_of_unknown_lengths(kind, xla):
    layer, inputs = make(kind), random_array((B, T, D), 1)
    expected = to_numpy(layer(inputs))
    found = compiled(layer, xla)(ops.convert_to_tensor(inputs))
    np.testing.assert_allclose(to_numpy(found), expected, atol=5e-6)
    assert layer(keras.Input((None, D))).shape == (None, None, D)


def test_no_positions_at_all():
    for kind in MAKE:
        layer = make(kind)
        assert layer(np.zeros((B, 0, D), "float32")).shape == (B, 0, D)
        assert layer(np.zeros((0, T, D), "float32")).shape == (0, T, D)


def test_closed_gates_of_an_ssru_stay_finite():
    layer = make("ssru")
    layer.forget_dense.bias.assign(np.full(D, 1e4))
    variable = keras.Variable(random_array((B, T, D), 1))
    (gradient,) = gradients(lambda: ops.sum(layer(ops.convert_to_tensor(variable))), [variable])
    assert np.all(np.isfinite(gradient)) and not np.any(to_numpy(layer(variable)))


def test_lightweight_convolution_by_hand():
    # One head, width 2, weights (3/4, 1/4) for the position before and the own one; g = (4, 8), of open gates.
    layer = layers.LightweightConvolution(1, 2, padding="causal")
    layer.build((1, 2, 1))
    layer.input_dense.kernel.assign([[1.0, 0.0]])
    layer.input_dense.bias.assign([0.0, 50.0])
    layer.position_weights.assign([[np.log(3.0), 0.0]])
    layer.output_dense.kernel.assign([[1.0]])
    output, weights = layer(np.array([[[4.0], [8.0]]], "float32"), return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(output)[0, :, 0], [1.0, 5.0], atol=1e-5)
    np.testing.assert_allclose(to_numpy(weights)[0, 0], [[0.25, 0.0], [0.75, 0.25]], atol=1e-6)


def test_dynamic_convolution_by_hand():
    # As above, but with weights that g = (0, ln 3) predicts: (1/2, 1/2) and (3/4, 1/4).
    layer = layers.DynamicConvolution(1, 2, padding="causal")
    layer.build((1, 2, 1))
    layer.input_dense.kernel.assign([[1.0, 0.0]])
    layer.input_dense.bias.assign([0.0, 50.0])
    layer.weight_dense.kernel.assign([[1.0, 0.0]])
    _, weights = layer(np.array([[[0.0], [np.log(3.0)]]], "float32"), return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(weights)[0, 0], [[0.5, 0.0], [0.75, 0.25]], atol=1e-5)


def test_ssru_by_hand():
    # f = 1/2 at each position, W = 1: states (1, 5/2, 1/4 …), negative ones cut off.
    layer = layers.SSRU()
    layer.build((1, 3, 1))
    layer.input_dense.kernel.assign([[1.0]])
    layer.forget_dense.kernel.assign([[0.0]])
    output = layer(np.array([[[2.0], [4.0], [-9.0]]], "float32"))
    np.testing.assert_allclose(to_numpy(output)[0, :, 0], [1.0, 2.5, 0.0], atol=1e-6)


def test_average_attention_by_hand():
    # Gates of 1/2: half of the input and of the mean: (2 + 2) / 2 and (4 + 3) / 2.
    layer = layers.AverageAttention()
    layer.build((1, 2, 1))
    layer.gate_dense.kernel.assign(np.zeros((2, 2)))
    output = layer(np.array([[[2.0], [4.0]]], "float32"))
    np.testing.assert_allclose(to_numpy(output)[0, :, 0], [2.0, 3.5], atol=1e-6)


@pytest.mark.parametrize("kind", nightly_unless(["causal dynamic", "ssru"].__contains__, CAUSAL))
def test_in_a_decoder_block(kind):
    attention = layers.MultiHeadAttention(2, 3, name="cross_attention")
    block = layers.TransformerDecoderBlock(make(kind), attention, layers.FeedForward(5))
    inputs, memory = random_array((B, T, D), 1), random_array((B, 5, D), 2)
    expected, cache = to_numpy(block(inputs, memory)), make(kind).create_cache(B, T)
    output, cache = block(inputs[:, :4], memory, cache=cache)
    np.testing.assert_allclose(to_numpy(output), expected[:, :4], atol=1e-5)
    output, cache = block(inputs[:, 4:5], memory, cache=cache)
    np.testing.assert_allclose(to_numpy(output), expected[:, 4:5], atol=1e-5)


def test_errors():
    inputs, dynamic, ssru, average = np.zeros((B, T, D), "float32"), make("dynamic"), make("ssru"), make("average")
    check_refusals(
        [
            (lambda: dynamic(inputs, use_causal_mask=True), "`use_causal_mask`", "`padding='causal'`"),
            (lambda: dynamic(inputs, cache=dynamic.create_cache(B)), "cache", "`padding='causal'`"),
            (lambda: ssru(inputs, inputs[:, :3]), "SSRU", "(2, 7, 6)", "(2, 3, 6)"),
            (lambda: ssru(inputs, return_attention_scores=True), "SSRU", "weights"),
            (lambda: average(inputs, attention_mask=np.ones((B, T, T), bool)), "`attention_mask`", "AverageAttention"),
            (lambda: average(inputs, query_mask=np.ones((B, T))), "`query_mask`", "boolean"),
            (lambda: layers.DynamicConvolution(4, 3)(inputs), "`num_heads`", "size 6", "num_heads=4"),
            (lambda: layers.LightweightConvolution(2, 3, "valid"), "`padding`", "same, causal", "'valid'"),
            (lambda: layers.LightweightConvolution(2, 0), "`width`", "width=0"),
        ]
    )
