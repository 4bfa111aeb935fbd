"""Dense, blockwise and fused: the ways to work attention out agree, under every mask, with scores, bias and dropout."""

import keras
import numpy as np
import pytest
from keras import ops
from support.every import every
from support.layers.cases import SOFTMAX_CASES, first_of_each_class, with_each
from support.layers.contract import (
    arrays,
    build,
    call,
    case_masks,
    compiled,
    gradients,
    random_array,
    randomize,
    to_numpy,
)

from zoo import layers
from zoo.layers.core import kernels
from zoo.layers.core.softmax import masked_softmax
from zoo.layers.execution import chunks, plan

# Layers with a path of their own show elsewhere that it agrees.
PLAIN = first_of_each_class([case for case in SOFTMAX_CASES if case.covers.attend is layers.BaseAttention.attend])
# Whose scores take many numbers for a pair, need positions, are the usual ones, and depend on those of other heads.
FEW = (layers.AdditiveAttention, layers.LocalAttention, layers.MultiHeadAttention, layers.TalkingHeadsAttention)
SOME = [case for case in PLAIN if case.covers in (*FEW, layers.GroupedQueryAttention, layers.SelfAttention)]
T, S = 3, 5


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Makes chunks of one or two of the three queries."""
    monkeypatch.setattr(plan, "CHUNK_BUDGET", 2 * 7 * 2 * S)


def _assert_close(results, expected, atol=2e-6, rtol=2e-5, scaled=False):
    for result, reference in zip(results, expected, strict=True):
        scale = max(1.0, np.abs(reference).max()) if scaled else 1.0
        np.testing.assert_allclose(to_numpy(result), reference, atol=atol * scale, rtol=rtol)


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
def test_chunks_and_kernels_are_as_all_at_once(case):
    layer, inputs, masks = build(case), arrays(case), case_masks(case, 1)  # the rules of two cases hide all of row 1
    masks["query_mask"][0] = False
    layer.implementation = "dense"
    expected = call(case, layer, inputs, **masks)
    for implementation in ("blockwise", "fused"):
        layer.implementation = implementation
        asked, weights = call(case, layer, inputs, **masks)
        _assert_close((asked, weights), expected)
        np.testing.assert_array_equal(call(case, layer, inputs, scores=False, **masks)[0], asked)
        assert not np.any(asked[0]) and not np.any(weights[0]) and np.any(asked[1])


@with_each([case for case in PLAIN if case.covers in FEW], (layers.AdditiveAttention, layers.MultiHeadAttention))
def test_chunks_in_graphs_in_half_precision_and_with_dropout(case):
    layer, inputs, masks = build(case), arrays(case), case_masks(case)
    expected = call(case, layer, inputs, use_causal_mask=True, **masks)
    layer.implementation = "blockwise"
    _assert_close(_in_a_graph(layer, inputs, masks), expected)
    for policy in ("mixed_bfloat16", "mixed_float16"):
        half = build(case, policy)
        half.implementation = "blockwise"
        _assert_close(call(case, half, inputs, use_causal_mask=True, **masks), expected, atol=0.06, scaled=True)
    _check_dropout(case, inputs)


def _in_a_graph(layer, inputs, masks):
    """Returns what a layer returns in a graph, on TensorFlow one that knows no lengths."""

    def run(*tensors):
        given = dict(zip(masks, tensors[len(inputs) :], strict=True))
        return layer(*tensors[: len(inputs)], return_attention_scores=True, use_causal_mask=True, **given)

    tensors = [ops.convert_to_tensor(value) for value in (*inputs.values(), *masks.values())]
    if keras.backend.backend() != "tensorflow":
        return compiled(run, False)(*tensors)
    import tensorflow as tf

    specs = [tf.TensorSpec([None, None, *tensor.shape[2:]], tensor.dtype) for tensor in tensors]
    return tf.function(run, input_signature=specs, autograph=False)(*tensors)


def _check_dropout(case, inputs):
    """Checks that chunks drop the same weights in both passes.

    The output is linear in the values: its gradient there leads back to it, if both passes dropped the same.
    """
    config = {**build(case).get_config(), "dropout": 0.5, "seed": 3, "implementation": "blockwise"}
    layer = case.covers.from_config(config)
    layer.build(*case.inputs.values())
    randomize(layer)
    inputs, direction = {name: keras.Variable(value) for name, value in inputs.items()}, random_array(case.output, 97)

    def outputs(training=True):
        layer.dropout_layer.seed_generator.state.assign(np.ones(2, "uint32"))
        return layer(*(ops.convert_to_tensor(value) for value in inputs.values()), training=training)

    (gradient,) = gradients(lambda: ops.sum(outputs() * ops.convert_to_tensor(direction)), [inputs["value"]])
    values, dropped = to_numpy(inputs["value"]), to_numpy(outputs())
    assert not np.allclose(dropped, to_numpy(outputs(training=False)))
    inputs["value"].assign(np.zeros_like(values))
    np.testing.assert_allclose(
        np.sum(gradient * values), np.sum((dropped - to_numpy(outputs())) * direction), rtol=1e-4
    )


@pytest.mark.nightly
@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.name)
def test_chunks_under_xla(case):
    layer, masks = build(case), case_masks(case)
    expected = call(case, layer, arrays(case), **masks)
    layer.implementation = "blockwise"
    tensors = [ops.convert_to_tensor(value) for value in arrays(case).values()]
    run = compiled(lambda *tensors: layer(*tensors, return_attention_scores=True, **masks), True)
    _assert_close(run(*tensors), expected)


def test_chunks_drop_weights_of_their_own(monkeypatch):
    monkeypatch.setattr(plan, "CHUNK_BUDGET", 1)
    layer = layers.AdditiveAttention(2, dropout=0.5, seed=3, implementation="blockwise")
    query, value = np.ones((1, 7, 2), "float32"), random_array((1, 19, 2), 1)
    assert layer.explain_execution(query, value).path == "chunks"
    rows = to_numpy(layer(query, value, training=True))[0]
    assert len(np.unique(rows, axis=0)) == 7


def test_rows_to_spare_have_finite_gradients(monkeypatch):
    # A zero has no direction, and three queries leave a row to spare in chunks of two.
    monkeypatch.setattr(plan, "CHUNK_BUDGET", 2 * (2 * S * 13))

    def cosine(query, key):
        lengths = ops.sqrt(ops.sum(query**2, axis=-1, keepdims=True))
        return ops.matmul(query / lengths, ops.swapaxes(key, -1, -2))

    layer = layers.Attention(layers.CallableScore(cosine, hidden_size=13))
    query, value = random_array((2, T, 7), 1), keras.Variable(random_array((2, S, 7), 2))
    direction, found = ops.convert_to_tensor(random_array((2, T, 7), 3)), {}
    for implementation, path in (("dense", "dense"), ("blockwise", "chunks")):
        layer.implementation = implementation
        assert layer.explain_execution(query, value).path == path
        found[implementation] = gradients(
            lambda: ops.sum(layer(query, ops.convert_to_tensor(value)) * direction), [value]
        )
    np.testing.assert_allclose(found["blockwise"], found["dense"], atol=1e-6)


def _gradients_of_both(make, policy="float32", adapt=lambda layer: None):
    """Returns the gradients of the query and the weights of a layer that works densely, and in chunks of one query."""
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


class _OwnScore(layers.Score):
    def build(self, query_shape, key_shape):
        self.scale = self.add_weight(shape=(query_shape[-1],), name="scale")

    def compare(self, query, key):
        return ops.matmul(query * self.scale, ops.swapaxes(key, -1, -2))


class _DroppingScore(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.dropout = keras.layers.Dropout(0.5, seed=1)

    def call(self, query, key, training=None):
        return ops.matmul(self.dropout(query, training=training), ops.swapaxes(key, -1, -2))


class _TemperedAttention(layers.BaseAttention):
    """Attention whose softmax has a weight of its own, no sublayer's."""

    def build(self, query_shape, value_shape=None, key_shape=None):
        self.temperature = self.add_weight(shape=(), initializer="ones", name="temperature")

    def compare(self, query, key, visibility):
        return ops.matmul(query, ops.swapaxes(key, -1, -2))

    def normalize(self, scores, query, visibility):
        return masked_softmax(scores * self.temperature, visibility.mask())


def _additive(**options):
    return layers.AdditiveAttention(4, **options)


def _own_score(dtype, **options):
    return layers.Attention(_OwnScore(dtype=dtype), dtype=dtype, **options)


def _dropping(dtype, **options):
    return layers.Attention(_DroppingScore(), **options)


WEIGHTS = {
    "frozen": ((_additive, "float32", _freeze), 1e-5),
    "of LoRA": ((_additive, "float32", _with_lora), 1e-5),
    "of a score of one's own": ((_own_score,), 1e-5),
    "of a score of one's own, in half precision": ((_own_score, "mixed_bfloat16"), 0.03),
    "of a score that draws random numbers": ((_dropping,), 1e-6),
    "of the softmax": ((_TemperedAttention,), 1e-5),
}


def test_gradients_of_all_kinds_of_weights_in_chunks(monkeypatch):
    monkeypatch.setattr(plan, "CHUNK_BUDGET", 1)
    with every() as failures:
        for name, (arguments, tolerance) in WEIGHTS.items():
            with failures.of(name):
                dense, blockwise = _gradients_of_both(*arguments)
                assert np.any(dense[-1])
                _assert_close(
                    blockwise, [to_numpy(each) for each in dense], atol=tolerance, rtol=tolerance, scaled=True
                )


def test_large_sizes_choose_chunks_by_themselves(monkeypatch):
    layer = layers.ScaledDotProductAttention()
    monkeypatch.setattr(plan, "DENSE_LIMIT", 100)
    inputs, memory = ops.zeros((2, 7, 3)), {"value": ops.zeros((2, 8, 3))}

    def path(query, keys):
        return layer.explain_execution(query, ops.zeros((query.shape[0], keys, 3))).path

    assert chunks.chunk_size(layer, inputs, memory) == 7  # all of them fit into a chunk
    monkeypatch.setattr(plan, "CHUNK_BUDGET", 33)
    assert chunks.chunk_size(layer, inputs, memory) == 2
    assert path(inputs, 8) != "dense"
    assert path(inputs[:1, :2], 8) == path(inputs[:, :1], 800) == "dense"
    layer.implementation = "dense"
    assert path(inputs, 8) == "dense"


def test_unknown_implementation():
    with pytest.raises(ValueError, match="implementation.*flash"):
        layers.ScaledDotProductAttention(implementation="flash")


def test_a_head_that_sees_nothing_adds_nothing():
    layer, query, value = layers.MultiHeadAttention(2, 4), random_array((2, T, 8), 1), random_array((2, S, 8), 2)
    mask, found = np.ones((2, 2, T, S), bool), []
    mask[0, 1] = False
    layer.build(query.shape, value.shape)
    randomize(layer)
    for implementation in ("dense", "blockwise", "fused"):
        layer.implementation = implementation
        found.append(to_numpy(layer(query, value, attention_mask=mask)))
    np.testing.assert_allclose(found[1:], [found[0]] * 2, atol=2e-6)


def test_what_a_fused_kernel_is_not_asked_for(monkeypatch):
    layer = layers.MultiHeadAttention(num_heads=2, key_dim=4, dropout=0.5, implementation="fused")
    inputs = np.ones((2, T, 8), "float32")
    options = {"none": {}, "causal": {"use_causal_mask": True}, "mask": {"value_mask": np.ones((2, T), bool)}}
    options |= {"bias": {"attention_bias": np.zeros((2, 2, T, T))}, "dropout": {"training": True}}

    def fused():
        return {
            name for name, each in options.items() if layer.explain_execution(inputs, inputs, **each).path == "fused"
        }

    assert fused() == {"none", "causal", "mask", "bias"}
    monkeypatch.setattr(plan, "fuses_masks", lambda: False)  # its gradient is not finite then
    assert fused() == {"none", "causal"}


@pytest.mark.nightly
def test_kernels_of_pytorch_without_that_of_cudnn():
    torch = pytest.importorskip("torch")
    assert torch.backends.cuda.cudnn_sdp_enabled()
    with kernels.without_cudnn():
        enabled = torch.backends.cuda
        assert not enabled.cudnn_sdp_enabled() and enabled.flash_sdp_enabled() and enabled.math_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled()
