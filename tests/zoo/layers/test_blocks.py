"""Feed-forward networks and Transformer blocks: gates, normalisations and decoding without a memory."""

import math

import keras
import numpy as np
import pytest
from cases_blocks import CASES
from contract import arrays, build, call, case_masks, compiled, random_array, to_numpy
from keras import ops

from zoo import layers

BY_NAME = {case.name: case for case in CASES}
ACTIVATIONS = {
    "relu": lambda x: max(x, 0.0),
    "gelu": lambda x: x * 0.5 * (1.0 + math.erf(x / math.sqrt(2.0))),
    "silu": lambda x: x / (1.0 + math.exp(-x)),
    "sigmoid": lambda x: 1.0 / (1.0 + math.exp(-x)),
}
B, LENGTH, ROOM, D = 2, 7, 11, 11


def _dense(layer, inputs):
    output = inputs @ to_numpy(layer.kernel)
    return output if layer.bias is None else output + to_numpy(layer.bias)


def _feed_forward(layer, inputs):
    activation = np.vectorize(ACTIVATIONS[keras.activations.serialize(layer.activation)])
    hidden = activation(_dense(layer.intermediate_dense, inputs))
    if isinstance(layer, layers.GatedFeedForward):
        hidden = hidden * _dense(layer.linear_dense, inputs)
    return _dense(layer.output_dense, hidden)


def _norm(layer, rows):
    if isinstance(layer, keras.layers.RMSNormalization):
        scale = to_numpy(layer.scale)
        return np.array([row / math.sqrt((row**2).mean() + layer.epsilon) * scale for row in rows])
    gamma, beta = to_numpy(layer.gamma), to_numpy(layer.beta)
    return np.array([(row - row.mean()) / math.sqrt(row.var() + layer.epsilon) * gamma + beta for row in rows])


def _multi_head(layer, query, memory, allowed):
    """Returns the output [T, D] of one sequence."""
    q, k, v = _dense(layer.query_dense, query), _dense(layer.key_dense, memory), _dense(layer.value_dense, memory)
    output = np.zeros((len(query), layer.num_heads * layer.value_dim))
    for head, t in np.ndindex(layer.num_heads, len(query)):
        part = slice(head * layer.key_dim, (head + 1) * layer.key_dim)
        scores = [q[t, part] @ k[s, part] / math.sqrt(layer.key_dim) for s in range(len(memory))]
        weights = [math.exp(score) * ok for score, ok in zip(scores, allowed[t], strict=True)]
        total = sum(weights) or 1.0
        output[t, part] = sum(weight / total * v[s, part] for s, weight in enumerate(weights))
    return _dense(layer.output_dense, output) * allowed.any(axis=1, keepdims=True)


def _residual(block, number, inputs, part):
    if block.normalize_first:
        return inputs + part(_norm(block.norms[number], inputs))
    return _norm(block.norms[number], inputs + part(inputs))


def _close(result, expected, atol=5e-6):
    np.testing.assert_allclose(to_numpy(result), expected, atol=atol, rtol=5e-5)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("use_bias", [False, True])
def test_feed_forward(gated, activation, use_bias):
    layer_class = layers.GatedFeedForward if gated else layers.FeedForward
    layer = layer_class(13, activation=activation, use_bias=use_bias)
    layer.build((2, 3, 5))
    layer.set_weights([random_array(weight.shape, [i, 3]) for i, weight in enumerate(layer.weights)])
    inputs = random_array((2, 3, 5), 1)
    _close(layer(inputs), np.stack([_feed_forward(layer, sequence) for sequence in inputs]))


def test_gated_feed_forward_by_hand():
    layer = layers.GatedFeedForward(2, activation="relu")
    layer.build((1, 1, 2))
    # (2, 1): the gate is relu(2 − 1, 1 − 2) = (1, 0), what it lets through (4, 99): (4, 0) → (4, 8).
    by_name = {weight.path.split("/")[-2]: weight for weight in layer.weights}
    by_name["intermediate"].assign([[1.0, 0.0], [-1.0, -1.0]])
    by_name["linear"].assign([[2.0, 0.0], [0.0, 99.0]])
    by_name["output"].assign([[1.0, 2.0], [0.0, 1.0]])
    _close(layer(np.array([[[2.0, 1.0]]], "float32")), [[[4.0, 8.0]]])


def test_default_gate_is_swish():
    assert layers.GatedFeedForward(2).activation is keras.activations.silu
    assert not layers.GatedFeedForward(2).use_bias and layers.FeedForward(2).use_bias


def test_rms_encoder_block():
    case = BY_NAME["rms_norm_encoder_block"]
    block, inputs, mask = build(case), arrays(case)["inputs"], case_masks(case)["mask"]
    output = call(case, block, arrays(case), mask=mask)[0]
    for b in range(2):
        allowed = mask[b][:, None] & mask[b]
        hidden = _residual(block, 0, inputs[b], lambda x: _multi_head(block.attention, x, x, allowed))  # noqa: B023
        expected = _residual(block, 1, hidden, lambda x: _feed_forward(block.feed_forward, x))
        _close(output[b], expected)


def test_rms_decoder_block():
    case = BY_NAME["rms_norm_decoder_block"]
    block, masks = build(case), case_masks(case)
    output = call(case, block, arrays(case), **masks)[0]
    for b in range(2):
        inputs, memory = (value[b] for value in arrays(case).values())
        own = masks["mask"][b][:, None] & masks["mask"][b] & np.tri(3, dtype=bool)
        cross = masks["mask"][b][:, None] & masks["memory_mask"][b]
        parts = [
            lambda x, allowed=own: _multi_head(block.self_attention, x, x, allowed),
            lambda x, allowed=cross, memory=memory: _multi_head(block.cross_attention, x, memory, allowed),
            lambda x: _feed_forward(block.feed_forward, x),
        ]
        for number, part in enumerate(parts):
            inputs = _residual(block, number, inputs, part)
        _close(output[b], inputs)


class Nothing(layers.BaseAttention):
    """Attention that finds zeros, and keeps what it was asked for in a list."""

    needs_query_position = True

    def __init__(self, calls, **kwargs):
        super().__init__(**kwargs)
        self.calls = calls

    def call(self, query, value=None, return_attention_scores=False, cache=None, start_index=None, **arguments):
        self.calls.append((return_attention_scores, start_index))
        if cache is not None:
            return query * 0, {"index": cache["index"] + query.shape[1]}
        return (query * 0, ops.zeros((1, 2, 2))) if return_attention_scores else query * 0

    def build(self, query_shape, value_shape=None):
        """Has no weights."""

    def compute_output_spec(self, query, *arguments, **options):
        return keras.KerasTensor(query.shape)


def _nothing_but_norms(normalization, normalize_first):
    feed_forward = layers.FeedForward(1)
    feed_forward.build((1, 2, 2))
    feed_forward.set_weights([np.zeros(weight.shape) for weight in feed_forward.weights])
    return layers.TransformerEncoderBlock(
        Nothing([]), feed_forward, normalize_first, epsilon=1e-12, normalization=normalization
    )


@pytest.mark.parametrize(
    ("normalization", "expected"),
    # (3, 4): mean 3.5, deviation 0.5; root of the mean square √12.5. Normed twice it stays.
    [("layer_norm", [-1.0, 1.0]), ("rms_norm", [3.0 / math.sqrt(12.5), 4.0 / math.sqrt(12.5)])],
)
def test_normalizations_by_hand(normalization, expected):
    inputs = np.array([[[3.0, 4.0], [3.0, 4.0]]], "float32")
    _close(_nothing_but_norms(normalization, False)(inputs)[0, 0], expected)
    _close(_nothing_but_norms(normalization, True)(inputs), inputs)


def test_blocks_ask_for_the_weights_only_if_they_are_wanted():
    own, cross = Nothing([]), Nothing([])
    block = layers.TransformerDecoderBlock(own, cross, layers.FeedForward(1))
    inputs = np.ones((1, 2, 2), "float32")
    block(inputs, inputs)
    block(inputs, inputs, return_attention_scores=True)
    assert [asked for asked, _ in own.calls] == [False, False]
    assert [asked for asked, _ in cross.calls] == [False, True]


def test_cross_attention_learns_the_position():
    own, cross = Nothing([]), Nothing([])
    block = layers.TransformerDecoderBlock(own, cross, layers.FeedForward(1))
    inputs, cache = np.ones((1, 2, 2), "float32"), {"index": 0}
    block(inputs, inputs)
    for _ in range(2):
        _, cache = block(inputs, inputs, cache=cache)
    assert [start for _, start in cross.calls] == [0, 0, 2]


ENCODERS = [
    case
    for case in CASES
    if case.covers is layers.TransformerEncoderBlock and isinstance(build(case).attention, layers.MultiHeadAttention)
]
every_encoder = pytest.mark.parametrize("case", ENCODERS, ids=lambda case: case.name)


@every_encoder
@pytest.mark.parametrize("chunks", [(7,), (1,) * 7, (3, 1, 1, 2)], ids=str)
def test_decoder_only_steps_equal_the_full_pass(case, chunks):
    block, inputs = build(case), random_array((B, LENGTH, D), 1)
    expected, weights = block(inputs, use_causal_mask=True, return_attention_scores=True)
    cache, start = block.attention.create_cache(B, ROOM), 0
    for length in chunks:
        part = slice(start, start + length)
        output, scores, cache = block(inputs[:, part], cache=cache, return_attention_scores=True)
        _close(output, to_numpy(expected)[:, part])
        _close(scores[..., :LENGTH], to_numpy(weights)[:, :, part])
        start += length
    assert int(cache["index"]) == LENGTH
    output, cache = block(inputs[:, :2], cache=block.attention.create_cache(B, ROOM))
    _close(output, to_numpy(expected)[:, :2])


@every_encoder
def test_prompts_padded_at_the_front(case):
    block, inputs = build(case), random_array((B, LENGTH, D), 2)
    real = np.ones((B, ROOM), bool)
    real[0, :2] = False
    expected = to_numpy(block(inputs, mask=real[:, :LENGTH], use_causal_mask=True))
    cache = block.attention.create_cache(B, ROOM)
    for part in (slice(0, 4), slice(4, 5), slice(5, 7)):
        length = part.stop - part.start
        allowed = np.broadcast_to(real[:, None], (B, length, ROOM))
        output, cache = block(inputs[:, part], mask=real[:, part], attention_mask=allowed, cache=cache)
        _close(to_numpy(output)[real[:, part]], expected[:, part][real[:, part]])


def test_one_compiled_step_serves_all_positions():
    block, inputs = build(BY_NAME["rms_norm_encoder_block"]), random_array((B, LENGTH, D), 3)
    expected = to_numpy(block(inputs, use_causal_mask=True))

    def step(inputs, key, value, index):
        output, cache = block(inputs, cache={"key": key, "value": value, "index": index})
        return output, cache["key"], cache["value"], cache["index"]

    step, cache = compiled(step, xla=True), block.attention.create_cache(B, LENGTH)
    cache = cache["key"], cache["value"], cache["index"]
    for position in range(LENGTH):
        output, *cache = step(ops.convert_to_tensor(inputs[:, position : position + 1]), *cache)
        _close(output[:, 0], expected[:, position])


def test_a_projected_memory_needs_no_mask():
    case = BY_NAME["rms_norm_decoder_block"]
    block, (inputs, memory) = build(case), arrays(case).values()
    projected = block.project_memory(ops.convert_to_tensor(memory))
    _close(block(inputs, projected), to_numpy(block(inputs, memory)), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: layers.TransformerEncoderBlock(Nothing([]), layers.FeedForward(1), normalization="batch_norm"),
            "`normalization` must be one of layer_norm, rms_norm. Received: normalization='batch_norm'.",
        ),
        (
            lambda: layers.GatedFeedForward(0),
            "`intermediate_dim` must be a positive integer. Received: intermediate_dim=0.",
        ),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
