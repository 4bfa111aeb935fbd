"""Attention whose cost does not grow with T · S: formulas, caches, cost."""

import math

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.contract import (
    compiled,
    graph_and_xla,
    random_array,
    random_mask,
    randomize,
    tensorflow_only,
    to_numpy,
)
from support.layers.efficient import (
    B,
    D,
    H,
    N,
    V,
    build_layer,
    every_kind,
    identity_layer,
    make_block,
    make_linear,
    make_performer,
    make_window,
    near_pairs,
)
from support.layers.refusals import check_refusals
from support.tiers import nightly_unless

from zoo import layers
from zoo.layers.attention import cache as caches
from zoo.layers.attention import linear as linear_attention
from zoo.layers.attention import sliding_window as sliding_window_attention

LENGTHS = [(19, 6, None), (9, 19, 4), (19, 19, None), (6, 19, None), (1, 19, None)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Makes several blocks out of a few positions."""
    monkeypatch.setattr(sliding_window_attention, "MIN_ROWS", 4)
    monkeypatch.setattr(linear_attention, "BLOCK_SIZE", 4)


KINDS = [make_window, make_block, make_linear, make_performer]
# Queries and keys, and where the queries begin.
lengths = pytest.mark.parametrize("lengths", nightly_unless([(19, 6, None), (9, 19, 4)].__contains__, LENGTHS), ids=str)


def causal_mask(queries, keys, start=None):
    return np.tri(queries, keys, keys - queries if start is None else start, dtype=bool)


def _features(layer, vector, is_query):
    if isinstance(layer, layers.PerformerAttention):
        vector = vector / len(vector) ** 0.25
        omegas = to_numpy(layer.random_features).T
        return np.array([math.exp(omega @ vector - vector @ vector / 2) for omega in omegas]) / math.sqrt(len(omegas))
    return np.array([x + 1 if x > 0 else math.exp(x) for x in vector])


def _similarity(layer, query, key):
    """Returns what the weight of a key is proportional to."""
    if isinstance(layer, layers.LinearAttention):
        return _features(layer, query, True) @ _features(layer, key, False)
    return math.exp(query @ key / math.sqrt(len(query)))


def _dense(layer, inputs, size, head):
    columns = slice(head * size, (head + 1) * size)
    return inputs @ to_numpy(layer.kernel)[:, columns] + to_numpy(layer.bias)[columns]


def _reference(layer, query, value, allowed):
    """Returns output [T, D] and weights [N, T, S] of one sequence."""
    output, weights = np.zeros((len(query), D)), np.zeros((N, *allowed.shape))
    kernel = to_numpy(layer.output_dense.kernel)
    for head in range(N):
        queries, keys = _dense(layer.query_dense, query, H, head), _dense(layer.key_dense, value, H, head)
        values = _dense(layer.value_dense, value, V, head)
        for t in range(len(query)):
            for s in np.flatnonzero(allowed[t]):
                weights[head, t, s] = _similarity(layer, queries[t], keys[s])
            weights[head, t] /= weights[head, t].sum() or 1.0
        output += weights[head] @ values @ kernel[head * V : (head + 1) * V]
    output += to_numpy(layer.output_dense.bias)
    output[~allowed.any(axis=1)] = 0.0
    return output, weights


@every_kind
@lengths
def test_formula(make, lengths):
    queries, keys, start = lengths
    layer, query, value = build_layer(make()), random_array((B, queries, D), 1), random_array((B, keys, D), 2)
    query_mask, value_mask = random_mask((B, queries), 1), random_mask((B, keys), 2)
    for causal in (False, True):
        options = {"query_mask": query_mask, "value_mask": value_mask, "use_causal_mask": causal, "start_index": start}
        output, weights = map(to_numpy, layer(query, value, return_attention_scores=True, **options))
        np.testing.assert_array_equal(to_numpy(layer(query, value, **options)), output)
        near = near_pairs(layer, *lengths) & (causal_mask(*lengths) if causal else True)
        for b in range(B):
            allowed = near & query_mask[b][:, None] & value_mask[b]
            expected, expected_weights = _reference(layer, query[b], value[b], allowed)
            np.testing.assert_allclose(weights[b], expected_weights, atol=5e-6)
            np.testing.assert_allclose(output[b], expected, atol=1e-5)
            np.testing.assert_array_equal(weights[b] == 0, np.broadcast_to(~allowed, (N, *allowed.shape)))


def test_equal_weights_by_hand():
    # Queries and keys are 0, so that the weights of all that a query sees are equal; the values are 3, 6, 12, 24.
    zeros, values = np.zeros((1, 4, 1), "float32"), np.array([[[3.0], [6.0], [12.0], [24.0]]], "float32")
    for layer, causal, expected in (
        (layers.SlidingWindowAttention(1, 1, 1), False, [4.5, 7, 14, 18]),
        (layers.SlidingWindowAttention(1, 1, 1), True, [3, 4.5, 9, 18]),
        (layers.SlidingWindowAttention(1, 1, 9), False, [11.25] * 4),
        (layers.BlockLocalAttention(1, 1, 2), False, [4.5, 4.5, 18, 18]),
        (layers.BlockLocalAttention(1, 1, 3), True, [3, 4.5, 7, 24]),
        (layers.LinearAttention(1, 1), True, [3, 4.5, 7, 11.25]),
    ):
        output = to_numpy(identity_layer(layer)(zeros, values, zeros, use_causal_mask=causal))
        np.testing.assert_allclose(output[0, :, 0], expected, rtol=1e-6, err_msg=layer.name)


@pytest.mark.nightly  # test_cache.py takes steps of such layers, too
@every_kind
@pytest.mark.parametrize("room", [17, None], ids=["room", "grows"])
def test_prefill_and_steps_equal_the_full_pass(make, room):
    layer, inputs = build_layer(make(positions=layers.RotaryPositions())), random_array((B, 13, D), 1)
    mask = np.ones((B, 17), bool)
    mask[0, :2] = mask[1, 5] = False
    expected = to_numpy(layer(inputs, inputs, value_mask=mask[:, :13], use_causal_mask=True))
    cache, start = layer.create_cache(B, room), 0
    for length in (6, 1, 1, 5):
        part, start = slice(start, start + length), start + length
        output, cache = layer(inputs[:, part], inputs[:, part], value_mask=mask[:, : room or start], cache=cache)
        np.testing.assert_allclose(to_numpy(output), expected[:, part], atol=5e-6)
        assert int(caches.next_position(cache)) == start


@pytest.mark.nightly  # test_cache.py compiles a step of such layers, too
@every_kind
@graph_and_xla
def test_one_compiled_step_serves_all_positions(make, xla):
    layer, inputs = build_layer(make()), random_array((B, 9, D), 2)
    expected = to_numpy(layer(inputs, inputs, use_causal_mask=True))
    cache = layer.create_cache(B, 9)
    names = list(cache)

    def step(inputs, *values):
        output, cache = layer(inputs, inputs, cache=dict(zip(names, values, strict=True)))
        return output, *(cache[name] for name in names)

    step, values = compiled(step, xla), cache.values()
    for position in range(9):
        output, *values = step(ops.convert_to_tensor(inputs[:, position : position + 1]), *values)
        np.testing.assert_allclose(to_numpy(output)[:, 0], expected[:, position], atol=5e-6)


@pytest.mark.parametrize("make", nightly_unless([make_linear].__contains__, KINDS))
def test_decoder_block(make):
    block = layers.TransformerDecoderBlock(make(), layers.MultiHeadAttention(N, H), layers.FeedForward(13))
    inputs, memory = random_array((B, 9, D), 3), random_array((B, 5, D), 4)
    block.build(inputs.shape, memory.shape)
    randomize(block)
    expected = to_numpy(block(inputs, memory))
    cache, projected = block.self_attention.create_cache(B, 9), block.project_memory(ops.convert_to_tensor(memory))
    for position in range(9):
        output, cache = block(inputs[:, position : position + 1], projected, cache=cache)
        np.testing.assert_allclose(to_numpy(output)[:, 0], expected[:, position], atol=2e-5)


def _largest(function):
    """Returns the number of elements of the largest tensor in the graph of a concrete function."""
    sizes = [output.shape for operation in function.graph.get_operations() for output in operation.outputs]
    return max(int(np.prod([size or 1 for size in shape])) for shape in sizes if shape.rank)


@pytest.mark.nightly
@tensorflow_only("walks a TensorFlow graph")
@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("causal", [False, True])
def test_no_tensor_has_an_element_for_each_pair(make, causal, monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(sliding_window_attention, "MIN_ROWS", 32)
    monkeypatch.setattr(linear_attention, "BLOCK_SIZE", 64)
    layer = {
        make_window: lambda: layers.SlidingWindowAttention(2, 4, window=16),
        make_block: lambda: layers.BlockLocalAttention(2, 4, block_size=16),
        make_linear: lambda: layers.LinearAttention(2, 4),
        make_performer: lambda: layers.PerformerAttention(2, 4, num_features=8),
    }[make]()
    layer.build((1, 512, 8), (1, 512, 8))

    @tf.function(input_signature=[tf.TensorSpec((1, length, 8)) for length in (512, 512)], autograph=False)
    def forward_and_backward(query, value):
        with tf.GradientTape() as tape:
            tape.watch((query, value))
            output = layer(query, value, value_mask=tf.ones((1, 512), tf.bool), use_causal_mask=causal)
        return tape.gradient(output, (query, value))

    assert _largest(forward_and_backward.get_concrete_function()) <= 512 * 512 // 2  # of a head alone


@pytest.mark.nightly  # the contract has a graph of unknown sizes for each of them, too
@tensorflow_only("sizes are always known elsewhere")
@every_kind
@graph_and_xla
def test_unknown_sizes(make, xla):
    import tensorflow as tf

    layer = build_layer(make())

    def run(query, value, value_mask):
        options = {"value_mask": value_mask, "return_attention_scores": True}
        return [layer(query, value, use_causal_mask=causal, **options) for causal in (False, True)]

    shapes = [((None, None, D), tf.float32), ((None, None, D), tf.float32), ((None, None), tf.bool)]
    signature = [tf.TensorSpec(*shape) for shape in shapes]
    function = tf.function(run, input_signature=signature, jit_compile=xla, autograph=False)
    for queries, keys in [(9, 13)] if xla else [(19, 19), (1, 19), (6, 3)]:
        given = random_array((B, queries, D), 1), random_array((B, keys, D), 2), random_mask((B, keys))
        for result, reference in zip(
            keras.tree.flatten(function(*given)), keras.tree.flatten(run(*given)), strict=True
        ):
            np.testing.assert_allclose(to_numpy(result), to_numpy(reference), atol=5e-6)


def test_errors():
    check_refusals(
        [
            (lambda: layers.SlidingWindowAttention(2, 4, 0), "`window`", "window=0"),
            (lambda: layers.BlockLocalAttention(2, 4, 2.5), "`block_size`", "block_size=2.5"),
            (lambda: layers.PerformerAttention(2, 4, 0), "`num_features`", "num_features=0"),
            (lambda: make_window(score="location"), "`score`", "SlidingWindowAttention", "<LocationScore"),
            (lambda: make_window(score="location", share_score=False), "`score`", "SlidingWindowAttention"),
            (lambda: make_block(score=layers.LocationScore(9)), "`score`", "BlockLocalAttention", "<LocationScore"),
            (lambda: make_linear(score="dot"), "`score`", "score='dot'"),
            (lambda: make_linear(share_score=False), "`share_score`", "share_score=False"),
            (lambda: make_linear(logit_softcap=5.0), "`logit_softcap`", "logit_softcap=5.0"),
            (lambda: make_linear(dropout=0.1), "`dropout`", "dropout=0.1"),
            (lambda: make_performer(positions=layers.ALiBiPositions()), "`positions`", "<ALiBiPositions"),
            (lambda: make_linear(positions=layers.XPosPositions()), "`positions`", "XPosPositions"),
        ]
    )
