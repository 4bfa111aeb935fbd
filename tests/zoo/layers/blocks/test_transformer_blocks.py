"""Feed-forward networks and Transformer blocks: gates, normalisations and decoding without a memory."""

import math

import keras
import numpy as np
import pytest
from keras import ops
from support.every import assert_refused, every
from support.layers.cases.blocks import CASES
from support.layers.contract import arrays, build, call, case_masks, compiled, random_array, randomize, to_numpy

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


def test_feed_forward():
    inputs = random_array((2, 3, 5), 1)
    with every() as failures:
        for number, activation in enumerate(ACTIVATIONS):
            for layer_class in (layers.FeedForward, layers.GatedFeedForward):
                with failures.of((layer_class.__name__, activation)):
                    use_bias = (number % 2 == 0) == (layer_class is layers.FeedForward)
                    layer = layer_class(13, activation=activation, use_bias=use_bias)
                    layer.build((2, 3, 5))
                    randomize(layer)
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


def test_normalizations_by_hand():
    inputs = np.array([[[3.0, 4.0], [3.0, 4.0]]], "float32")
    # (3, 4): mean 3.5, deviation 0.5; root of the mean square √12.5. Normed twice it stays.
    by_hand = {"layer_norm": [-1.0, 1.0], "rms_norm": [3.0 / math.sqrt(12.5), 4.0 / math.sqrt(12.5)]}
    for normalization, expected in by_hand.items():
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
BLOCKS = [*ENCODERS, *(case for case in CASES if case.covers is layers.TransformerDecoderBlock)]
# Row 0 is padded at the front, row 1 has a gap.
REAL = np.array([[False, False, True, True, True, True, True], [True, False, True, True, True, False, True]])
PAIRS = np.random.default_rng(3).random((B, 7, LENGTH, LENGTH)) < 0.7


def _in_block(case):
    """Returns the block, its self-attention, and a function of its inputs that calls it with causal attention."""
    block = build(case)
    if isinstance(block, layers.TransformerEncoderBlock):
        return block, block.attention, lambda x, **options: block(x, use_causal_mask=True, **options)
    memory = random_array((B, 5, 13), 7)
    return block, block.self_attention, lambda x, **options: block(x, memory, **options)


def _in_chunks(attention, function, inputs, chunks, room, options):
    """Returns the joined outputs of calls with a cache; `options` are functions of the first and the last place."""
    cache, start, outputs = attention.create_cache(B, room), 0, []
    for length in chunks:
        stop = start + length
        given = {name: option(start, stop) for name, option in options.items()}
        output, cache = function(inputs[:, start:stop], cache=cache, **given)
        outputs.append(to_numpy(output))
        start = stop
    return np.concatenate(outputs, axis=1)


def _padded(array, length, value=True):
    """Returns an array with its last axis filled up to `length`: what stands behind the last position matters not."""
    widths = [(0, 0)] * (array.ndim - 1) + [(0, length - array.shape[-1])]
    return np.pad(array, widths, constant_values=value)


# One of each order of the parts.
FAST = ("sandwich_norm_encoder_block", "post_norm_decoder_block", "rms_norm_decoder_block")


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.name in FAST else pytest.mark.nightly, id=case.name) for case in BLOCKS],
)
def test_a_cache_gives_what_the_full_pass_gives(case):
    _, attention, function = _in_block(case)
    inputs, bias = random_array((B, LENGTH, D), 2), random_array((B, 7, LENGTH, LENGTH), 5)
    expected = {"pairs": to_numpy(function(inputs, attention_mask=PAIRS, attention_bias=bias, mask=REAL))}
    expected["mask"] = to_numpy(function(inputs, mask=REAL))
    plain = to_numpy(function(inputs))
    for given in ({"attention_mask": PAIRS}, {"attention_bias": bias}):
        assert np.abs(to_numpy(function(inputs, **given)) - plain).max() > 0.01
    for name, room in (("pairs", ROOM), ("mask", None)):
        options = {"mask": lambda start, stop, room=room: _padded(REAL, ROOM)[:, : room or stop]}
        if name == "pairs":
            options["attention_mask"] = lambda start, stop: _padded(PAIRS, ROOM)[..., start:stop, :]
            options["attention_bias"] = lambda start, stop: _padded(bias, ROOM, 0.0)[..., start:stop, :]
        _close(_in_chunks(attention, function, inputs, (3, 1, 1, 2), room, options), expected[name])
        # A mask of the new positions alone is refused.
        _, cache = function(inputs[:, :3], cache=attention.create_cache(B, room))
        with pytest.raises(ValueError, match=rf"mask.* {room or 5}\b.*\(2, 2\)"):
            function(inputs[:, 3:5], mask=REAL[:, 3:5], cache=cache)


def test_weights_of_decoder_only_steps():
    block, inputs = build(BY_NAME["pre_norm_encoder_block"]), random_array((B, LENGTH, D), 1)
    expected, weights = block(inputs, use_causal_mask=True, return_attention_scores=True)
    cache, start = block.attention.create_cache(B, ROOM), 0
    for length in (3, 1, 1, 2):
        part = slice(start, start + length)
        output, scores, cache = block(inputs[:, part], cache=cache, return_attention_scores=True)
        _close(output, to_numpy(expected)[:, part])
        _close(scores[..., :LENGTH], to_numpy(weights)[:, :, part])
        start += length
    assert int(cache["index"]) == LENGTH


def test_masks_of_embeddings_with_a_cache_are_refused():
    block, attention, _ = _in_block(BY_NAME["pre_norm_encoder_block"])
    embedded = keras.layers.Embedding(5, D, mask_zero=True)(np.array([[3], [0]]))
    with pytest.raises(ValueError, match=rf"mask.* {ROOM}\b.*\(2, 1\)"):
        block(embedded, cache=attention.create_cache(B, ROOM))


def test_masks_and_a_cache_of_sums():
    feed_forward = layers.FeedForward(5)
    block = layers.TransformerEncoderBlock(layers.LinearAttention(7, 3), feed_forward)
    inputs = random_array((B, LENGTH, D), 2)
    expected = to_numpy(block(inputs, mask=REAL, use_causal_mask=True))
    options = {"mask": lambda start, stop: _padded(REAL, ROOM)}
    _close(_in_chunks(block.attention, block, inputs, (3, 1, 1, 2), None, options), expected)


@pytest.mark.parametrize("xla", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["graph", "xla"])
def test_masks_in_one_compiled_step(xla):
    _, attention, function = _in_block(BY_NAME["rms_norm_decoder_block"])
    inputs = random_array((B, LENGTH, D), 3)
    expected = to_numpy(function(inputs, mask=REAL))

    def step(inputs, mask, key, value, index):
        output, cache = function(inputs, mask=mask, cache={"key": key, "value": value, "index": index})
        return output, cache["key"], cache["value"], cache["index"]

    step, cache = compiled(step, xla), attention.create_cache(B, LENGTH)
    mask, cache = ops.convert_to_tensor(REAL), (cache["key"], cache["value"], cache["index"])
    for position in range(LENGTH):
        output, *cache = step(ops.convert_to_tensor(inputs[:, position : position + 1]), mask, *cache)
        _close(output[:, 0], expected[:, position])


def test_the_decoder_returns_both_kinds_of_weights():
    block, attention, function = _in_block(BY_NAME["rms_norm_decoder_block"])
    inputs = random_array((B, LENGTH, D), 2)
    output, cross, own = function(inputs, return_attention_scores=True, return_self_attention_scores=True)
    only_own = function(inputs, return_self_attention_scores=True)
    for result, expected in zip((output, own), only_own, strict=True):
        np.testing.assert_array_equal(to_numpy(result), to_numpy(expected))
    np.testing.assert_array_equal(to_numpy(output), to_numpy(function(inputs)))
    _close(own, to_numpy(attention(inputs, inputs, use_causal_mask=True, return_attention_scores=True)[1]))
    assert (tuple(cross.shape), tuple(own.shape)) == ((B, 7, LENGTH, 5), (B, 7, LENGTH, LENGTH))
    options = {"return_attention_scores": True, "return_self_attention_scores": True}
    *results, cache = function(inputs, cache=attention.create_cache(B, ROOM), **options)
    assert int(cache["index"]) == LENGTH
    for result, expected in zip(results, (output, cross, _padded(to_numpy(own), ROOM, 0.0)), strict=True):
        _close(result, to_numpy(expected))
    symbolic = block(keras.Input((None, D)), keras.Input((None, 13)), **options)
    assert [len(each.shape) for each in symbolic] == [3, 4, 4]


def test_masks_of_rows_that_share_a_memory():
    block, attention, _ = _in_block(BY_NAME["rms_norm_decoder_block"])
    inputs, memory, real = random_array((B, 1, D), 2), random_array((1, 5, 13), 7), np.array([[True], [False]])
    expected = to_numpy(block(inputs, np.repeat(memory, B, axis=0), mask=real))
    _close(block(inputs, memory, mask=real, sharing=B), expected)


def test_a_projected_memory_needs_no_mask():
    case = BY_NAME["rms_norm_decoder_block"]
    block, (inputs, memory) = build(case), arrays(case).values()
    projected = block.project_memory(ops.convert_to_tensor(memory))
    _close(block(inputs, projected), to_numpy(block(inputs, memory)), atol=1e-6)


WRONG = [
    (
        lambda: layers.TransformerEncoderBlock(Nothing([]), layers.FeedForward(1), normalization="batch_norm"),
        "normalization.*'batch_norm'",
    ),
    (lambda: layers.TransformerEncoderBlock("mha", layers.FeedForward(1)), "attention='mha'"),
    (
        lambda: layers.TransformerDecoderBlock(Nothing([]), layers.MultiHeadAttention, layers.FeedForward(1)),
        "cross_attention=<class",
    ),
    (lambda: layers.TransformerEncoderBlock(Nothing([]), 2048), "feed_forward=2048"),
    (lambda: layers.GatedFeedForward(0), "intermediate_dim=0"),
]


def test_errors():
    assert_refused(WRONG)
