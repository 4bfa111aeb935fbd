"""Attention at the edges: sizes of zero, sizes that are unknown, infinite biases, weights of one's own."""

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.cases import ATTENTION_CASES, with_each
from support.layers.contract import arrays, build, call, gradients, random_array, tensorflow_only, to_numpy

from zoo import layers
from zoo.layers.attention import masks
from zoo.layers.core import execution

B, T, S = 2, 3, 5
one_of_each = with_each(ATTENTION_CASES)
INFINITE = [-np.inf, -1e31, -3e38]


def _resized(case, sizes):
    """Returns inputs of a case with other B, T and S."""
    batch, queries, keys = sizes
    lengths = {"query": queries, "value": keys, "key": keys}
    shapes = {name: (batch, lengths[name], value.shape[-1]) for name, value in arrays(case).items()}
    return {name: random_array(shape, 1) for name, shape in shapes.items()}


@one_of_each
@pytest.mark.parametrize("implementation", ["auto", pytest.param("blockwise", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("sizes", [(0, T, S), (B, 0, S), (B, T, 0)], ids=str)
def test_sizes_of_zero(case, implementation, sizes):
    layer, inputs = build(case), _resized(case, sizes)
    layer.implementation = implementation
    masked = {"value_mask": np.ones((sizes[0], sizes[2]), bool)}
    if not case.signed:  # without a softmax there is nothing that a bias is added to
        masked["attention_bias"] = np.zeros((1, 1, sizes[2]), "float32")
    for causal, options in ((False, {}), (True, masked)):
        output, weights = call(case, layer, inputs, use_causal_mask=causal, **options)
        assert output.shape == (*sizes[:2], case.output[-1]) and not np.any(output)
        assert weights.shape == (sizes[0], *case.weights[1:-2], *sizes[1:])


@pytest.mark.parametrize("normalization", ["sink", "sigmoid", "sparsemax", "entmax15", layers.EntmaxNormalization(1.3)])
@pytest.mark.parametrize("sizes", [(0, T, S), (B, 0, S), (B, T, 0)], ids=str)
def test_normalizations_of_nothing(normalization, sizes):
    batch, queries, keys = sizes
    layer = layers.Attention("dot", normalization=normalization)
    query, value = random_array((batch, queries, 4), 1), random_array((batch, keys, 4), 2)
    output, weights = layer(query, value, return_attention_scores=True)
    assert output.shape == (batch, queries, 4) and not np.any(to_numpy(output))
    assert weights.shape == sizes


@tensorflow_only("sizes are always known elsewhere")
@one_of_each
@pytest.mark.parametrize("implementation", ["auto", pytest.param("blockwise", marks=pytest.mark.nightly)])
def test_sizes_that_turn_out_to_be_zero(case, implementation):
    import tensorflow as tf

    layer = build(case)
    layer.implementation = implementation
    signature = [tf.TensorSpec([None, None, shape[-1]]) for shape in case.inputs.values()]
    function = tf.function(lambda *inputs: layer(*inputs), input_signature=signature, autograph=False)
    for sizes in ((B, T, 0), (B, 0, S), (0, T, S)):
        output = function(*_resized(case, sizes).values())
        assert output.shape == (*sizes[:2], case.output[-1]) and not np.any(output)


@one_of_each
def test_layers_of_unknown_batch_are_built(case, monkeypatch):
    monkeypatch.setattr(execution, "CHUNK_BUDGET", 1)
    layer = build(case)
    layer.implementation = "blockwise"
    inputs = [keras.Input(shape[1:]) for shape in case.inputs.values()]
    output = layer(*inputs)
    assert output.shape[1:] == case.output[1:]
    model = keras.Model(inputs, output)
    expected = call(case, build(case), arrays(case), scores=False)[0]
    np.testing.assert_allclose(to_numpy(model(list(arrays(case).values()))), expected, atol=1e-5)


@pytest.mark.nightly
@tensorflow_only("sizes are always known elsewhere")
@one_of_each
def test_chunks_keep_the_sizes_that_are_known(case, monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(execution, "CHUNK_BUDGET", 1)
    layer = build(case)
    layer.implementation = "blockwise"
    for batch in (None, B):
        signature = [tf.TensorSpec([batch, *shape[1:]]) for shape in case.inputs.values()]
        function = tf.function(lambda *inputs: layer(*inputs, return_attention_scores=True), autograph=False)
        output, weights = function.get_concrete_function(*signature).structured_outputs
        assert (*output.shape,) == (batch, *case.output[1:])
        assert (*weights.shape,) == (batch, *case.weights[1:])


def _biased(policy, implementation, bias, **options):
    """Returns the weights of one layer, and its output."""
    layer = layers.MultiHeadAttention(2, 3, dtype=policy, implementation=implementation)
    layer.build((1, T, 4), (1, S, 4))
    layer.set_weights([random_array(weight.shape, 3) for weight in layer.weights])
    query, value = random_array((1, T, 4), 1), random_array((1, S, 4), 2)
    output, weights = layer(query, value, attention_bias=bias, return_attention_scores=True, **options)
    return to_numpy(weights), to_numpy(output), to_numpy(layer(query, value, attention_bias=bias, **options))


@pytest.mark.parametrize("policy", ["float32", pytest.param("mixed_bfloat16", marks=pytest.mark.nightly), "mixed_float16"])
@pytest.mark.parametrize("implementation", ["dense", "blockwise", "fused"])
@pytest.mark.parametrize("lowest", INFINITE)
def test_a_bias_hides_nothing_and_all_that_is_lowest_shares_evenly(policy, implementation, lowest):
    bias = np.full((T, S), lowest, "float32")
    if policy == "mixed_float16" and np.isinf(lowest):
        bias = bias.astype("float16")
    bias[1, 2] = 0.0
    mask = np.array([[1, 1, 1, 1, 0]], bool)
    for masked in ({}, {"value_mask": mask}, {"use_causal_mask": True}):
        weights, output, alone = _biased(policy, implementation, bias, **masked)
        visible = np.broadcast_to(mask if "value_mask" in masked else True, (T, S))
        visible = visible & np.tri(T, S, S - T if "use_causal_mask" in masked else S, dtype=bool)
        expected = visible / visible.sum(axis=1, keepdims=True)
        expected[1] = np.eye(S)[2]
        np.testing.assert_allclose(weights[0], np.broadcast_to(expected, (2, T, S)), atol=4e-3)
        np.testing.assert_array_equal(output, alone)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("implementation", ["dense", "blockwise", "fused"])
def test_an_infinite_bias_takes_all_the_weight(policy, implementation):
    bias = np.zeros((T, S), "float32")
    bias[0, 1] = bias[1, 0] = bias[1, 3] = np.inf
    for masked in ({}, {"value_mask": np.array([[1, 1, 1, 1, 0]], bool)}):
        weights, output, _ = _biased(policy, implementation, bias, **masked)
        np.testing.assert_array_equal(weights[0, :, 0], np.broadcast_to(np.eye(S)[1], (2, S)))
        np.testing.assert_array_equal(weights[0, :, 1], np.broadcast_to([0.5, 0, 0, 0.5, 0], (2, S)))
        assert np.all(np.isfinite(output))


class _TemperedAttention(layers.BaseAttention):
    """Attention whose softmax has a weight of its own, no sublayer's."""

    def build(self, query_shape, value_shape=None, key_shape=None):
        self.temperature = self.add_weight(shape=(), initializer="ones", name="temperature")

    def compare(self, query, key, visible):
        return ops.matmul(query, ops.swapaxes(key, -1, -2))

    def normalize(self, scores, query, visible):
        return masks.masked_softmax(scores * self.temperature, visible.mask())


def test_a_weight_of_the_softmax_gets_its_gradient_in_chunks(monkeypatch):
    monkeypatch.setattr(execution, "CHUNK_BUDGET", 1)
    query, value = random_array((B, T, 4), 1), random_array((B, S, 4), 2)
    direction = ops.convert_to_tensor(random_array((B, T, 4), 7))
    found = {}
    for implementation in ("dense", "blockwise"):
        layer = _TemperedAttention(implementation=implementation)
        layer.build(query.shape, value.shape)
        found[implementation] = gradients(
            lambda layer=layer: ops.sum(layer(query, value) * direction), layer.trainable_variables
        )
    np.testing.assert_allclose(found["blockwise"], found["dense"], rtol=1e-5)
    assert np.any(found["dense"])


@tensorflow_only("a gradient of its own, which XLA compiles, is TensorFlow's")
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_gradients_of_gradients_in_chunks(graph, monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(execution, "CHUNK_BUDGET", 1)

    def second(layer, inputs):
        with tf.GradientTape() as outer:
            outer.watch(inputs)
            with tf.GradientTape() as inner:
                inner.watch(inputs)
                output = tf.reduce_sum(layer(inputs, inputs) ** 2)
            first = tf.reduce_sum(inner.gradient(output, inputs) ** 2)
        return outer.gradient(first, inputs)

    inputs, found, weights = tf.constant(random_array((B, T, 4), 1)), {}, None
    for implementation in ("dense", "blockwise"):
        layer = layers.AdditiveAttention(7, implementation=implementation)
        layer.build(inputs.shape, inputs.shape)
        weights = layer.get_weights() if weights is None else weights
        layer.set_weights(weights)
        function = tf.function(second) if graph else second
        found[implementation] = to_numpy(function(layer, inputs))
    assert np.any(found["dense"])
    np.testing.assert_allclose(found["blockwise"], found["dense"], rtol=1e-4, atol=1e-5)
