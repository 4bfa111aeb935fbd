"""Attention at the edges: sizes of zero, sizes that are unknown, infinite biases, second derivatives."""

import functools

import keras
import numpy as np
import pytest
from support.every import every
from support.layers.cases import ATTENTION_CASES, first_of_each_class
from support.layers.contract import arrays, build, built, call, random_array, tensorflow_only, to_numpy
from support.tiers import nightly_unless

from zoo import layers
from zoo.layers.execution import plan

B, T, S = 2, 3, 5
ZERO = [(0, T, S), (B, 0, S), (B, T, 0)]
CLASSES = first_of_each_class(ATTENTION_CASES)
INFINITE = [-np.inf, -1e31, -3e38]


def _resized(case, sizes):
    """Returns inputs of a case with other B, T and S."""
    batch, queries, keys = sizes
    lengths = {"query": queries, "value": keys, "key": keys}
    shapes = {name: (batch, lengths[name], value.shape[-1]) for name, value in arrays(case).items()}
    return {name: random_array(shape, 1) for name, shape in shapes.items()}


@pytest.mark.parametrize("case", CLASSES, ids=lambda case: case.name)
def test_sizes_of_zero(case):
    layer = built(case)
    for sizes in ZERO:
        inputs, masked = _resized(case, sizes), {"value_mask": np.ones((sizes[0], sizes[2]), bool)}
        if not case.signed:  # without a softmax there is nothing that a bias is added to
            masked["attention_bias"] = np.zeros((1, 1, sizes[2]), "float32")
        for causal, options in [(True, masked), (False, {})][: 1 + (sizes[2] == 0)]:
            output, weights = call(case, layer, inputs, use_causal_mask=causal, **options)
            assert output.shape == (*sizes[:2], case.output[-1]) and not np.any(output)
            assert weights.shape == (sizes[0], *case.weights[1:-2], *sizes[1:])


def test_normalizations_of_nothing():
    with every() as failures:
        for normalization in ("sink", "sigmoid", "sparsemax", "entmax15", layers.EntmaxNormalization(1.3)):
            layer = layers.Attention("dot", normalization=normalization)
            for sizes in ZERO:
                with failures.of((normalization, sizes)):
                    query, value = random_array((*sizes[:2], 4), 1), random_array((sizes[0], sizes[2], 4), 2)
                    output, weights = layer(query, value, return_attention_scores=True)
                    assert output.shape == query.shape and not np.any(to_numpy(output))
                    assert weights.shape == sizes


@pytest.mark.nightly
@tensorflow_only("sizes are always known elsewhere")
@pytest.mark.parametrize("case", CLASSES, ids=lambda case: case.name)
@pytest.mark.parametrize("implementation", ["auto", "blockwise"])
def test_sizes_that_turn_out_to_be_zero(case, implementation):
    import tensorflow as tf

    layer = build(case)
    layer.implementation = implementation
    signature = [tf.TensorSpec([None, None, shape[-1]]) for shape in case.inputs.values()]
    causal = {} if isinstance(layer, layers.LocalAttention) else {"use_causal_mask": True}
    for options in ({}, causal):
        called = functools.partial(layer, **options)
        function = tf.function(lambda *inputs, called=called: called(*inputs), signature, autograph=False)
        for sizes in ZERO:
            output = function(*_resized(case, sizes).values())
            assert output.shape == (*sizes[:2], case.output[-1]) and not np.any(output)


@pytest.mark.nightly
@pytest.mark.parametrize("case", CLASSES, ids=lambda case: case.name)
def test_chunks_of_an_unknown_batch(case, monkeypatch):
    monkeypatch.setattr(plan, "CHUNK_BUDGET", 1)
    layer = build(case)
    layer.implementation = "blockwise"
    inputs = [keras.Input(shape[1:]) for shape in case.inputs.values()]
    output, weights = layer(*inputs, return_attention_scores=True)
    assert (*output.shape,) == (None, *case.output[1:]) and (*weights.shape,) == (None, *case.weights[1:])
    model = keras.Model(inputs, output)
    expected = call(case, built(case), arrays(case), scores=False)[0]
    np.testing.assert_allclose(to_numpy(model(list(arrays(case).values()))), expected, atol=1e-5)


def _biased(policy, implementation, bias, **options):
    """Returns the weights of one layer, and its output, which are the same without the weights."""
    layer = layers.MultiHeadAttention(2, 3, dtype=policy, implementation=implementation)
    layer.build((1, T, 4), (1, S, 4))
    layer.set_weights([random_array(weight.shape, 3) for weight in layer.weights])
    query, value = random_array((1, T, 4), 1), random_array((1, S, 4), 2)
    output, weights = layer(query, value, attention_bias=bias, return_attention_scores=True, **options)
    np.testing.assert_array_equal(to_numpy(output), to_numpy(layer(query, value, attention_bias=bias, **options)))
    return to_numpy(weights), to_numpy(output)


@pytest.mark.parametrize("implementation", ["dense", "blockwise", "fused"])
@pytest.mark.parametrize(
    "policy", nightly_unless("mixed_float16".__eq__, ["float32", "mixed_bfloat16", "mixed_float16"])
)
def test_infinite_biases(policy, implementation):
    mask, bias = np.array([[1, 1, 1, 1, 0]], bool), np.zeros((T, S), "float32")
    bias[0, 1] = bias[1, 0] = bias[1, 3] = np.inf
    for masked in ({}, {"value_mask": mask}):
        weights, output = _biased(policy, implementation, bias, **masked)
        np.testing.assert_array_equal(weights[0, :, 0], np.broadcast_to(np.eye(S)[1], (2, S)))
        np.testing.assert_array_equal(weights[0, :, 1], np.broadcast_to([0.5, 0, 0, 0.5, 0], (2, S)))
        assert np.all(np.isfinite(output))
    for lowest, masked in zip(INFINITE, ({}, {"value_mask": mask}, {"use_causal_mask": True}), strict=True):
        _check_lowest(policy, implementation, lowest, mask, masked)


def _check_lowest(policy, implementation, lowest, mask, masked):
    """Checks that a bias hides nothing, and that all that is lowest shares evenly."""
    bias = np.full((T, S), lowest, "float32")
    if policy == "mixed_float16" and np.isinf(lowest):
        bias = bias.astype("float16")
    bias[1, 2] = 0.0
    weights, _ = _biased(policy, implementation, bias, **masked)
    visible = np.broadcast_to(mask if "value_mask" in masked else True, (T, S))
    visible = visible & np.tri(T, S, S - T if "use_causal_mask" in masked else S, dtype=bool)
    expected = visible / visible.sum(axis=1, keepdims=True)
    expected[1] = np.eye(S)[2]
    np.testing.assert_allclose(weights[0], np.broadcast_to(expected, (2, T, S)), atol=4e-3)


@tensorflow_only("a gradient of its own, which XLA compiles, is TensorFlow's")
@pytest.mark.parametrize(
    ("graph", "order"),
    [(False, 2), *(pytest.param(True, order, marks=pytest.mark.nightly) for order in (1, 2))],
    ids=str,
)
def test_gradients_of_chunks_and_their_gradients(graph, order, monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(plan, "CHUNK_BUDGET", 1)

    def gradient(layer, inputs, order):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = layer(inputs, inputs) if order == 1 else gradient(layer, inputs, order - 1)
            total = tf.reduce_sum(found**2)
        return tape.gradient(total, inputs)

    inputs, found, weights = tf.constant(random_array((B, T, 4), 1)), {}, None
    for implementation in ("dense", "blockwise"):
        layer = layers.AdditiveAttention(7, implementation=implementation)
        layer.build(inputs.shape, inputs.shape)
        weights = layer.get_weights() if weights is None else weights
        layer.set_weights(weights)
        function = tf.function(gradient) if graph else gradient
        found[implementation] = to_numpy(function(layer, inputs, order))
    assert np.any(found["dense"])
    np.testing.assert_allclose(found["blockwise"], found["dense"], rtol=1e-4, atol=1e-5)
