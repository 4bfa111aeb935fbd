"""The gated convolution block."""

import math

import keras
import numpy as np
import pytest
from keras import ops
from support.every import assert_refused
from support.layers.cases.blocks import CASES
from support.layers.contract import arrays, build, call, case_masks, compiled, random_array, randomize, to_numpy

from zoo import layers

CONVOLUTIONS = [case for case in CASES if case.covers is layers.GatedConvolutionBlock]
CAUSAL = [case for case in CONVOLUTIONS if case.make("float32").padding == "causal"]
BY_NAME = {case.name: case for case in CONVOLUTIONS}


def _convolve(block, inputs, mask):
    """Returns the gated convolution with its residual for one sequence."""
    inputs = inputs * mask[:, None]
    length, size = inputs.shape
    kernel, bias = to_numpy(block.convolution_dense.kernel), to_numpy(block.convolution_dense.bias)
    kernel = kernel.reshape(block.width, size, 2 * size)
    first = -(block.width - 1) if block.padding == "causal" else -((block.width - 1) // 2)
    output = np.zeros((length, size))
    for t in range(length):
        hidden = bias.copy()
        for i in range(block.width):
            s = t + first + i
            if 0 <= s < length:
                hidden = hidden + inputs[s] @ kernel[i]
        gate = 1.0 / (1.0 + np.exp(-hidden[size:]))
        output[t] = (inputs[t] + hidden[:size] * gate) * math.sqrt(0.5)
    return output


def _attend(block, hidden, target, memory, embedding, mask, memory_mask):
    """Returns output and weights of the attention of one sequence."""
    score = block.attention.score
    w1, w2, v = (to_numpy(dense.kernel) for dense in (score.query_dense, score.key_dense, score.score_dense))
    output, weights = np.zeros_like(hidden), np.zeros((len(hidden), len(memory)))
    for t in range(len(hidden)):
        d = hidden[t] @ to_numpy(block.query_dense.kernel) + to_numpy(block.query_dense.bias) + target[t]
        scores = [np.tanh(d @ w1 + to_numpy(score.query_dense.bias) + z @ w2) @ v for z in memory]
        row = np.array([math.exp(s.item()) * ok for s, ok in zip(scores, memory_mask, strict=True)])
        weights[t] = row / row.sum() * mask[t]
        context = sum(w * (z + e) for w, z, e in zip(weights[t], memory, embedding, strict=True))
        context = math.sqrt(memory_mask.sum()) * context @ to_numpy(block.context_dense.kernel)
        output[t] = (hidden[t] + context) * math.sqrt(0.5)
    return output, weights


def _close(result, expected, atol=5e-6):
    np.testing.assert_allclose(to_numpy(result), expected, atol=atol, rtol=1e-5)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: case.name)
def test_reference(case):
    block, inputs, masks = build(case), arrays(case), case_masks(case)
    results = call(case, block, inputs, **masks)
    for b in range(2):
        rows = [value[b] for value in inputs.values()]
        hidden, weights = _convolve(block, rows[0], masks["mask"][b]), None
        if case.weights:
            hidden, weights = _attend(block, hidden, *rows[1:], masks["mask"][b], masks["memory_mask"][b])
            _close(results[1][b], weights)
        _close(results[0][b], hidden)


def test_widths():
    for width, padding in ((1, "same"), (2, "same"), (3, "causal"), (5, "same"), (2, "causal")):
        block = layers.GatedConvolutionBlock(width, padding)
        inputs = random_array((2, 4, 3), width)
        _close(block(inputs), np.stack([_convolve(block, sequence, np.ones(4, bool)) for sequence in inputs]))


def test_by_hand():
    # One feature, kernel of ones and an open gate: (x + the sum of those it sees) √½.
    for padding, sums in (("same", [3.0, 7.0, 6.0]), ("causal", [1.0, 3.0, 7.0])):
        block = layers.GatedConvolutionBlock(3, padding)
        block.build((1, 3, 1))
        block.set_weights([np.array([[1.0, 0.0]] * 3), np.array([0.0, 99.0])])
        inputs = np.array([[[1.0], [2.0], [4.0]]], "float32")
        _close(block(inputs), (inputs + np.reshape(sums, (1, 3, 1))) * math.sqrt(0.5))


def test_attention_by_hand():
    # A shut gate leaves x √½; equal keys share the weight; two of three positions are real.
    block = layers.GatedConvolutionBlock(1, attention=layers.DotAttention())
    block.build((1, 1, 1), (1, 1, 1), (1, 3, 1), (1, 3, 1))
    block.set_weights([np.zeros((1, 2)), np.array([0.0, 0.0]), np.zeros((1, 1)), np.zeros(1)])
    one = np.ones((1, 1, 1), "float32")
    memory, embedding = np.ones((1, 3, 1), "float32"), np.array([[[1.0], [5.0], [99.0]]], "float32")
    options = {"memory_mask": np.array([[True, True, False]]), "return_attention_scores": True}
    output, weights = block(one, one, memory, embedding, **options)
    _close(weights, [[[0.5, 0.5, 0.0]]])
    # The mean of 1 + 1 and 1 + 5 is 4.
    _close(output, [[[(math.sqrt(0.5) + math.sqrt(2.0) * 4.0) * math.sqrt(0.5)]]])
    # Without embeddings, and with no mask.
    _close(block(one, one, memory), [[[(math.sqrt(0.5) + math.sqrt(3.0)) * math.sqrt(0.5)]]])


@pytest.mark.parametrize("case", CAUSAL, ids=lambda case: case.name)
def test_prefill_and_steps_equal_the_full_pass(case):
    block, (inputs, *others) = build(case), [random_array((2, 7, s[-1]), s) for s in case.inputs.values()]
    mask = np.ones((2, 7), bool)
    mask[1, :2] = False
    options = {"return_attention_scores": True, "memory_mask": mask} if case.weights else {}
    target, memory = others[:1], others[1:]
    expected = block(inputs, *target, *memory, mask=mask, **options)
    expected = expected if case.weights else (expected,)
    memory = [block.project_memory(*map(ops.convert_to_tensor, memory))] if memory else []
    cache, start = block.create_cache(2), 0
    for length in (3, 1, 1, 2):
        part = slice(start, start + length)
        now = [each[:, part] for each in (inputs, *target)]
        *results, cache = block(*now, *memory, mask=mask[:, part], cache=cache, **options)
        for result, reference in zip(results, expected, strict=True):
            _close(result, to_numpy(reference)[:, part], atol=2e-6)
        start += length
        assert int(cache["index"]) == start and cache["inputs"].shape == (2, block.width - 1, 11)


def test_one_compiled_step_serves_all_positions():
    block, inputs = build(BY_NAME["causal_convolution_block"]), random_array((2, 7, 11), 1)
    expected = to_numpy(block(inputs))

    def step(inputs, last, index):
        output, cache = block(inputs, cache={"inputs": last, "index": index})
        return output, cache["inputs"], cache["index"]

    step, cache = compiled(step, xla=True), block.create_cache(2)
    cache = [cache["inputs"], cache["index"]]
    for position in range(7):
        output, *cache = step(ops.convert_to_tensor(inputs[:, position : position + 1]), *cache)
        _close(output[:, 0], expected[:, position], atol=2e-6)


def test_padding_changes_nothing():
    for name in ("gated_convolution_block", "causal_convolution_block"):
        block, inputs = build(BY_NAME[name]), arrays(BY_NAME[name])["inputs"]
        expected = to_numpy(block(inputs))
        padded = np.full((2, 11, 11), np.nan, "float32")
        padded[:, :7] = inputs
        mask = np.arange(11)[None] < np.array([[7], [7]])
        output = to_numpy(block(padded, mask=mask))
        _close(output[:, :7], expected, atol=2e-6)
        assert np.all(np.isfinite(output))


@pytest.mark.parametrize(
    ("policies", "size", "projected"),
    [(("mixed_bfloat16", "float32"), 5, False), (("float32", "mixed_bfloat16"), 7, True)],
    ids=["wide attention", "narrow attention"],
)
def test_attention_may_have_another_policy(policies, size, projected):
    memory, embedding = random_array((2, 3, size), 1), random_array((2, 3, size), 2)
    inputs, target = random_array((2, 4, 5), 3), random_array((2, 4, size), 4)
    results = []
    for policy, own in (policies, ("float32", "float32")):
        block = layers.GatedConvolutionBlock(3, attention=layers.DotAttention(dtype=own), dtype=policy)
        block.build(inputs.shape, target.shape, memory.shape, memory.shape)
        randomize(block)
        given = [memory, embedding]
        if projected:
            given = [block.project_memory(*map(ops.convert_to_tensor, given))]
        results.append(block(inputs, target, *given, return_attention_scores=True))
        assert keras.backend.standardize_dtype(results[-1][0].dtype) == block.compute_dtype
    for result, expected in zip(*results, strict=True):
        _close(result, to_numpy(expected), atol=0.06)


def test_default_kernel_keeps_the_variance():
    block = layers.GatedConvolutionBlock(5, dropout=0.2)
    block.build((None, None, 64))
    assert np.isclose(to_numpy(block.convolution_dense.kernel).var(), 4 * 0.8 / (5 * 64), rtol=0.05)


def _block(**options):
    return layers.GatedConvolutionBlock(3, **options)


_X = np.ones((2, 3, 5), "float32")


WRONG = [
    (lambda: layers.GatedConvolutionBlock(0), "width=0"),
    (lambda: _block(padding="valid"), "padding='valid'"),
    (lambda: _block(attention="dot"), "attention='dot'"),
    (lambda: _block()(_X, _X, _X), "attention=None"),
    (lambda: _block(attention=layers.DotAttention())(_X, _X), "memory=None"),
    (lambda: _block(attention=layers.DotAttention())(_X, memory=_X), "target_embedding=None"),
    (lambda: _block()(_X, cache={"inputs": _X[:, :2], "index": np.array(0)}), "padding='same'"),
    (lambda: _block()(_X, mask=np.ones((2, 3))), "mask.*float"),
]


def test_errors():
    assert_refused(WRONG)
