"""Dense, blockwise and fused: the ways to work attention out agree, under every mask, with scores, bias and dropout."""

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.cases import SOFTMAX_CASES, with_each
from support.layers.contract import (
    arrays,
    build,
    call,
    case_masks,
    compiled,
    gradients,
    graph_and_xla,
    random_array,
    randomize,
    tensorflow_only,
    to_numpy,
)

from zoo import layers
from zoo.layers.core import execution, kernels

# Layers with a path of their own show elsewhere that it agrees.
PLAIN = [case for case in SOFTMAX_CASES if case.covers.attend is layers.BaseAttention.attend]
one_of_each = with_each(PLAIN)
implementations = pytest.mark.parametrize("implementation", ["blockwise", "fused"])
MASKS = ["none", "vectors", "pairs", "causal", "everything"]
T, S = 3, 5


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Makes chunks of one or two of the three queries."""
    monkeypatch.setattr(execution, "CHUNK_BUDGET", 2 * 7 * 2 * S)


def _masks(case, kind):
    if kind == "vectors":
        return case_masks(case)
    if kind == "pairs":
        return {"attention_mask": np.random.default_rng(3).random((2, T, S)) < 0.5}
    if kind == "everything":
        return {"value_mask": np.zeros((2, S), bool)}
    return {"use_causal_mask": True} if kind == "causal" else {}


def _results(case, layer, bias=None, **options):
    """Returns output, weights, and the gradients of both for inputs and weights; without those that are always zero."""
    inputs = {name: keras.Variable(value) for name, value in arrays(case).items()}
    bias = None if bias is None else keras.Variable(bias)
    directions = [ops.cast(random_array(shape, 97), layer.compute_dtype) for shape in (case.output, case.weights)]

    def run():
        given = {} if bias is None else {"attention_bias": ops.convert_to_tensor(bias)}
        tensors = (ops.convert_to_tensor(value) for value in inputs.values())
        return layer(*tensors, return_attention_scores=True, **options, **given)

    def loss():
        return sum(ops.sum(result * direction) for result, direction in zip(run(), directions, strict=True))

    trained = [weight for weight in layer.trainable_variables if not weight.path.endswith(case.flat)]
    variables = [*inputs.values(), *([] if bias is None else [bias]), *trained]
    return [to_numpy(result) for result in run()] + gradients(loss, variables)


@pytest.mark.nightly  # test_matrix.py goes over all implementations, too
@one_of_each
@implementations
@pytest.mark.parametrize("kind", MASKS)
def test_agree_with_dense(case, implementation, kind):
    layer, masks = build(case, "float64"), _masks(case, kind)  # gradients that cancel are all rounding in float32
    layer.dropout = 0.0
    for bias in (None, random_array((T, S), 11), random_array((1, S), 12)):
        layer.implementation = "dense"
        expected = _results(case, layer, bias, **masks)
        layer.implementation = implementation
        for result, reference in zip(_results(case, layer, bias, **masks), expected, strict=True):
            np.testing.assert_allclose(result, reference, atol=5e-6 * max(1.0, np.abs(reference).max()), rtol=2e-5)


@one_of_each
@implementations
def test_scores_change_nothing_and_nothing_is_left_in_empty_rows(case, implementation):
    layer, masks = build(case), case_masks(case, 1)  # those of 0 and the rules of two cases hide all of row 1
    masks["query_mask"][0] = False
    layer.implementation = implementation
    asked, weights = call(case, layer, arrays(case), **masks)
    np.testing.assert_array_equal(call(case, layer, arrays(case), scores=False, **masks)[0], asked)
    assert not np.any(asked[0]) and not np.any(weights[0]) and np.any(asked[1])


@one_of_each
@graph_and_xla
def test_compiled(case, xla):
    layer, masks = build(case), case_masks(case)
    expected = call(case, layer, arrays(case), **masks)
    layer.implementation = "blockwise"
    tensors = [ops.convert_to_tensor(value) for value in arrays(case).values()]
    results = compiled(lambda *tensors: layer(*tensors, return_attention_scores=True, **masks), xla)(*tensors)
    for result, reference in zip(results, expected, strict=True):
        np.testing.assert_allclose(to_numpy(result), reference, atol=2e-6, rtol=2e-5)


@tensorflow_only("sizes are always known elsewhere")
@one_of_each
def test_unknown_sizes(case):
    import tensorflow as tf

    layer, inputs = build(case), arrays(case)
    expected = call(case, layer, inputs, use_causal_mask=True)
    layer.implementation = "blockwise"
    signature = [tf.TensorSpec([None, None, value.shape[-1]]) for value in inputs.values()]
    function = tf.function(
        lambda *tensors: layer(*tensors, return_attention_scores=True, use_causal_mask=True),
        input_signature=signature,
        autograph=False,
    )
    for result, reference in zip(function(*inputs.values()), expected, strict=True):
        np.testing.assert_allclose(to_numpy(result), reference, atol=2e-6, rtol=2e-5)


@one_of_each
def test_chunks_drop_the_same_weights_in_both_passes(case):
    # The output is linear in the values: its gradient there leads back to it, if both passes dropped the same.
    config = build(case).get_config()
    layer = case.covers.from_config({**config, "dropout": 0.5, "seed": 3})
    layer.build(*case.inputs.values())
    randomize(layer)
    layer.implementation = "blockwise"
    inputs = {name: keras.Variable(value) for name, value in arrays(case).items()}
    direction = random_array(case.output, 97)

    def outputs(training=True):
        layer.dropout_layer.seed_generator.state.assign(np.ones(2, "uint32"))
        return layer(*(ops.convert_to_tensor(value) for value in inputs.values()), training=training)

    (gradient,) = gradients(lambda: ops.sum(outputs() * ops.convert_to_tensor(direction)), [inputs["value"]])
    values = to_numpy(inputs["value"])
    dropped = to_numpy(outputs())
    assert not np.allclose(dropped, to_numpy(outputs(training=False)))
    inputs["value"].assign(np.zeros_like(values))
    np.testing.assert_allclose(
        np.sum(gradient * values), np.sum((dropped - to_numpy(outputs())) * direction), rtol=1e-4
    )


def test_chunks_drop_weights_of_their_own(monkeypatch):
    monkeypatch.setattr(execution, "CHUNK_BUDGET", 1)
    layer = layers.ScaledDotProductAttention(dropout=0.5, seed=3, implementation="blockwise")
    rows = to_numpy(layer(np.ones((1, 7, 2), "float32"), random_array((1, 19, 2), 1), training=True))[0]
    assert len(np.unique(rows, axis=0)) == 7


def test_rows_to_spare_have_finite_gradients(monkeypatch):
    # A zero has no direction, and three queries leave a row to spare in chunks of two.
    monkeypatch.setattr(execution, "CHUNK_BUDGET", 2 * 2 * S)
    layer = layers.Attention(
        lambda query, key: ops.matmul(
            query / ops.sqrt(ops.sum(query**2, axis=-1, keepdims=True)), ops.swapaxes(key, -1, -2)
        )
    )
    query, value = random_array((2, T, 7), 1), keras.Variable(random_array((2, S, 7), 2))
    direction, found = ops.convert_to_tensor(random_array((2, T, 7), 3)), {}
    for implementation in ("dense", "blockwise"):
        layer.implementation = implementation
        found[implementation] = gradients(
            lambda: ops.sum(layer(query, ops.convert_to_tensor(value)) * direction), [value]
        )
    np.testing.assert_allclose(found["blockwise"], found["dense"], atol=1e-6)


def _input_gradients(make, policy="float32", adapt=lambda layer: None):
    """Returns the gradients of the query for a layer that works densely, and in chunks of one query."""
    query, value, found = keras.Variable(random_array((2, T, 8), 1)), random_array((2, S, 8), 2), []
    for implementation in ("dense", "blockwise"):
        keras.utils.set_random_seed(3)
        layer = make(dtype=policy, implementation=implementation)
        layer.build(query.shape, value.shape)
        adapt(layer)

        def loss(layer=layer):
            return ops.sum(ops.cast(ops.square(layer(ops.convert_to_tensor(query), value, training=True)), "float32"))

        found.append(gradients(loss, [query, *layer.trainable_variables]))
    return found


def _freeze(layer):
    layer.trainable = False


def _with_lora(layer):
    layer.score.query_dense.enable_lora(2)
    layer.score.query_dense.lora_kernel_b.assign(random_array(layer.score.query_dense.lora_kernel_b.shape, 5))


@pytest.mark.parametrize("adapt", [_freeze, _with_lora])
def test_weights_that_are_not_trained(monkeypatch, adapt):
    monkeypatch.setattr(execution, "CHUNK_BUDGET", 1)
    dense, blockwise = _input_gradients(lambda **options: layers.AdditiveAttention(4, **options), adapt=adapt)
    for result, reference in zip(blockwise, dense, strict=True):
        np.testing.assert_allclose(result, reference, atol=1e-5)


class _OwnScore(layers.Score):
    def build(self, query_shape, key_shape):
        self.scale = self.add_weight(shape=(query_shape[-1],), name="scale")

    def compare(self, query, key):
        return ops.matmul(query * self.scale, ops.swapaxes(key, -1, -2))


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_weights_of_ones_own(monkeypatch, policy):
    monkeypatch.setattr(execution, "CHUNK_BUDGET", 1)
    dense, blockwise = _input_gradients(
        lambda dtype, **options: layers.Attention(_OwnScore(dtype=dtype), dtype=dtype, **options), policy
    )
    for result, reference in zip(blockwise, dense, strict=True):
        tolerance = (1e-5 if policy == "float32" else 0.03) * np.abs(reference).max()
        np.testing.assert_allclose(result, reference, atol=tolerance)


class _DroppingScore(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.dropout = keras.layers.Dropout(0.5, seed=1)

    def call(self, query, key, training=None):
        return ops.matmul(self.dropout(query, training=training), ops.swapaxes(key, -1, -2))


def test_scores_that_draw_random_numbers(monkeypatch):
    monkeypatch.setattr(execution, "CHUNK_BUDGET", 1)
    dense, blockwise = _input_gradients(lambda dtype, **options: layers.Attention(_DroppingScore(), **options))
    np.testing.assert_allclose(blockwise[0], dense[0], atol=1e-6)


@one_of_each
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_low_precision(case, policy):
    expected = _results(case, build(case))
    layer = build(case, policy)
    layer.dropout, layer.implementation = 0.0, "blockwise"
    for result, reference in zip(call(case, layer, arrays(case)), expected, strict=False):
        np.testing.assert_allclose(result, reference, atol=0.06 * max(1.0, np.abs(reference).max()))


def test_large_sizes_choose_chunks_by_themselves(monkeypatch):
    layer = layers.ScaledDotProductAttention()
    monkeypatch.setattr(execution, "DENSE_LIMIT", 100)
    inputs, memory = ops.zeros((2, 7, 3)), {"value": ops.zeros((2, 8, 3))}
    assert execution.chunk_size(layer, inputs, memory) == 7  # all of them fit into a chunk
    monkeypatch.setattr(execution, "CHUNK_BUDGET", 33)
    assert execution.chunk_size(layer, inputs, memory) == 2
    assert execution.chunk_size(layer, inputs[:1, :2], memory) is None
    assert execution.chunk_size(layer, inputs[:, :1], {"value": ops.zeros((2, 800, 3))}) is None
    layer.implementation = "dense"
    assert execution.chunk_size(layer, inputs, memory) is None


def test_unknown_implementation():
    with pytest.raises(ValueError, match="`implementation` must be one of auto, dense, .*Received: .*='flash'"):
        layers.ScaledDotProductAttention(implementation="flash")


@pytest.mark.parametrize(("masks", "path"), [("none", "fused"), ("causal", "fused"), ("vectors", "dense")])
def test_no_mask_is_given_to_a_kernel_whose_gradient_is_not_finite_then(monkeypatch, masks, path):
    monkeypatch.setattr(execution, "fuses_masks", lambda: False)
    layer = layers.MultiHeadAttention(num_heads=2, key_dim=4, implementation="fused")
    options = {"none": {}, "causal": {"use_causal_mask": True}, "vectors": {"value_mask": np.ones((2, T), bool)}}
    inputs = np.ones((2, T, 8), "float32")
    assert layer.explain_execution(inputs, inputs, **options[masks]).path == path
    assert layer.explain_execution(inputs, inputs, attention_bias=np.zeros((2, 2, T, T))).path == "dense"


def test_kernels_of_pytorch_without_that_of_cudnn():
    torch = pytest.importorskip("torch")
    assert torch.backends.cuda.cudnn_sdp_enabled()
    with kernels.without_cudnn():
        enabled = torch.backends.cuda
        assert not enabled.cudnn_sdp_enabled() and enabled.flash_sdp_enabled() and enabled.math_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled()
