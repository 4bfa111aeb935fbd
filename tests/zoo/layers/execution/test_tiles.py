"""Attention in tiles: it agrees with dense attention, skips what is not visible, and leaves what it cannot compute."""

import contextlib
import functools
import importlib

import keras
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from keras import ops
from support.every import every
from support.layers.contract import gradients, random_array, tensorflow_only, to_numpy

from zoo import layers
from zoo.layers.execution import plan, tiles
from zoo.layers.execution.running_softmax import has_running_softmax

B, D = 2, 8
SCORES = ["scaled_dot", "dot", "general", "cosine"]
POSITIONS = {
    "none": lambda: None,
    "rotary": layers.RotaryPositions,
    "alibi": layers.ALiBiPositions,
    "t5": lambda: layers.T5RelativePositions(6, 5),
    "shaw": lambda: layers.ShawRelativePositions(2),
}
MAKE = {
    "single": lambda score, positions, **options: layers.Attention(score, **options),
    "heads": lambda score, positions, **options: layers.MultiHeadAttention(
        4, 6, score=score, positions=POSITIONS[positions](), **options
    ),
    "groups": lambda score, positions, **options: layers.GroupedQueryAttention(
        4, 2, 6, score=score, positions=POSITIONS[positions](), **options
    ),
}
needs_tiles = pytest.mark.skipif(not has_running_softmax(), reason="chunks of queries take their place")


@pytest.fixture(autouse=True, scope="module")
def small_tiles():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "TILE_BUDGET", 600)
        patch.setattr(plan, "DENSE_LIMIT", 1)
        patch.setattr(plan, "CHUNK_BUDGET", 100)
        yield


def _mask(kind, lengths, rng, heads):
    queries, keys = lengths
    shape = {"pairs": (B, queries, keys), "heads": (B, heads, queries, keys), "shared": (1, 1, keys)}.get(kind)
    return {} if shape is None else {"attention_mask": rng.random(shape) < 0.6}


def _description(draw):
    """Returns kind and options of a layer, lengths, and options of its call."""
    kind, score = draw(st.sampled_from(list(MAKE))), draw(st.sampled_from(SCORES))
    positions = draw(st.sampled_from(list(POSITIONS)))
    lengths = queries, keys = draw(st.tuples(st.integers(2, 13), st.integers(1, 13)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    has_heads = kind != "single"
    masks = ["none", "pairs", "shared", *(["heads"] if has_heads else [])]
    options = _mask(draw(st.sampled_from(masks)), lengths, rng, 4)
    for name, length in (("query_mask", queries), ("value_mask", keys)):
        if draw(st.booleans()):
            options[name] = rng.random((B, length)) < 0.7
    options["use_causal_mask"] = draw(st.booleans())
    options["start_index"] = draw(st.sampled_from([None, 0, 3, -2]))
    biases = [None, (queries, keys), (1, keys), (queries, 1), (B, 4, queries, keys) if has_heads else (B, 1, keys)]
    bias = draw(st.sampled_from(biases))
    return kind, score, positions, lengths, options, None if bias is None else random_array(bias, 5) * 3


def _results(layer, query, value, bias, options):
    inputs = [keras.Variable(each) for each in (query, value) + (() if bias is None else (bias,))]

    def run():
        query, value, *bias = (ops.convert_to_tensor(each) for each in inputs)
        return layer(query, value, **options, **({"attention_bias": bias[0]} if bias else {}))

    def loss():
        return ops.sum(ops.sin(7 * run()))

    return [to_numpy(run())] + gradients(loss, inputs + layer.trainable_variables)


def _check_all_ways(kind, score, positions, lengths, options, bias, ways):
    query, value = random_array((B, lengths[0], D), 1), random_array((B, lengths[1], D), 2)
    expected = None
    for implementation in ("dense", *ways):
        keras.utils.set_random_seed(3)
        layer = MAKE[kind](score, positions, implementation=implementation)
        found = _results(layer, query, value, bias, options)
        if expected is None:
            expected = found
            continue
        for result, reference in zip(found, expected, strict=True):
            np.testing.assert_allclose(result, reference, atol=3e-5 * max(1.0, np.abs(reference).max()))


def _some_masks(lengths, heads=None):
    rng = np.random.default_rng(7)
    shapes = {"query_mask": (B, lengths[0]), "value_mask": (B, lengths[1])}
    if heads is not None:
        shapes["attention_mask"] = (B, heads, *lengths)
    return {name: rng.random(shape) < 0.7 for name, shape in shapes.items()}


CAUSAL, LATE = {"use_causal_mask": True}, {"start_index": 3}


@pytest.mark.parametrize(
    ("description", "way"),
    [
        (("heads", "scaled_dot", "shaw", (13, 11), _some_masks((13, 11), 4) | CAUSAL, (B, 4, 13, 11)), "blockwise"),
        (("groups", "cosine", "t5", (11, 13), _some_masks((11, 13)) | CAUSAL | LATE, (1, 13)), "blockwise"),
        (("single", "general", "none", (13, 13), CAUSAL, None), "blockwise"),
        pytest.param(
            ("heads", "scaled_dot", "rotary", (5, 7), _some_masks((5, 7)), None), "fused", marks=pytest.mark.nightly
        ),
    ],
    ids=["heads", "groups", "single", "kernel"],
)
def test_tiles_and_kernels_are_as_all_at_once(description, way):
    *description, bias = description
    _check_all_ways(*description, None if bias is None else random_array(bias, 5) * 3, [way])


@pytest.mark.nightly
@settings(max_examples=20, deadline=None, database=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_all_ways_agree(data):
    _check_all_ways(*_description(data.draw), ("blockwise", "auto", "fused"))


def _counting(monkeypatch, layer, *inputs, **options):
    """Returns how many pairs of queries and keys a call compares."""
    count = []
    compare = layers.DotScore.compare
    monkeypatch.setattr(
        layers.DotScore,
        "compare",
        lambda self, query, key: count.append(query.shape[-2] * key.shape[-2]) or compare(self, query, key),
    )
    with _every_tile_is_called():
        layer(*inputs, **options)
    return sum(count)


def _every_tile_is_called():
    """Returns a context in which JAX does not trace one tile for all."""
    return (
        importlib.import_module("jax").disable_jit() if keras.backend.backend() == "jax" else contextlib.nullcontext()
    )


@needs_tiles
def test_what_no_query_of_a_tile_sees_is_not_computed(monkeypatch):
    monkeypatch.setattr(tiles, "TILE_BUDGET", 65)
    inputs = random_array((1, 32, 8), 1)
    layer = layers.Attention("dot", implementation="blockwise")
    assert _counting(monkeypatch, layer, inputs, inputs) == 32 * 32
    assert 32 * 32 // 2 < _counting(monkeypatch, layer, inputs, inputs, use_causal_mask=True) < 32 * 32 * 0.65
    late = {"use_causal_mask": True, "start_index": 32}  # sees everything
    assert _counting(monkeypatch, layer, inputs, inputs, **late) == 32 * 32


@needs_tiles
def test_tiles_are_for_what_can_be_skipped(monkeypatch):
    monkeypatch.setattr(plan, "CHUNK_BUDGET", 16 * B * 11)
    layer = layers.Attention("dot", implementation="blockwise")
    query, value, longer = random_array((B, 7, D), 1), random_array((B, 11, D), 2), random_array((B, 12, D), 3)
    assert layer.explain_execution(query, value, use_causal_mask=True).path == "tiles"
    assert layer.explain_execution(query, value) == ("chunks", "neither a causal mask nor a rule has tiles to skip")
    assert layer.explain_execution(query, longer).path == "tiles"  # a chunk would have too few queries


def _both(make, *inputs, **options):
    """Returns the output of a layer with one seed, by tiles and at once."""
    found = []
    for implementation in ("blockwise", "dense"):
        keras.utils.set_random_seed(3)
        layer = make(implementation=implementation)
        if has_running_softmax():
            path = "tiles" if implementation == "blockwise" else "dense"
            assert layer.explain_execution(*inputs, **options).path == path
        found.append(to_numpy(layer(*inputs, **options)))
    return found


@needs_tiles
def test_dtypes():
    query, value = random_array((B, 7, D), 1), random_array((B, 9, D), 2)
    for dtype in ("mixed_bfloat16", *(["float64"] if keras.backend.backend() != "jax" else [])):
        make = functools.partial(layers.Attention, "scaled_dot", dtype=dtype)
        tolerance = 2e-2 if dtype == "mixed_bfloat16" else 1e-6
        np.testing.assert_allclose(*_both(make, query, value, use_causal_mask=True), atol=tolerance)


def test_rules_in_tiles(monkeypatch):
    monkeypatch.setattr(tiles, "TILE_BUDGET", 130)
    query, value = random_array((B, 13, D), 1), random_array((B, 13, D), 2)
    segments = (np.arange(13) >= np.array([[9], [7]])).astype("int32")  # the second sequence needs fewer tiles
    rules = {
        "global": (layers.SlidingWindow(1) | layers.GlobalTokens([0, 7]), {}),
        "packed": (layers.Causal() & layers.Segments(), {"segment_ids": segments}),
        "prefix": (layers.PrefixLM(), {"prefix_length": np.array([11, 0])}),
        "everything": (layers.Causal(), {"start_index": 13}),  # no mask, but the last tiles are filled up
    }
    with every() as failures:
        for name, (rule, told) in rules.items():
            with failures.of(name):
                make = functools.partial(layers.Attention, "scaled_dot", visibility=rule)
                np.testing.assert_allclose(*_both(make, query, value, **told), atol=1e-6)


def test_what_a_subclass_overrides_sees_all_keys():
    query, value, seen = random_array((B, 7, D), 1), random_array((B, 11, D), 2), []

    def override(self, *inputs, method):
        seen.append([each.shape for each in inputs if hasattr(each, "shape")])
        return getattr(layers.MultiHeadAttention, method)(self, *inputs)

    for method in ("compare", "compare_heads", "normalize", "weighted_sum", "sum_heads"):
        own = {method: functools.partialmethod(override, method=method)}
        changed = type("Changed", (layers.MultiHeadAttention,), own)(2, 4, implementation="blockwise")
        seen.clear()
        changed(query, value)
        assert seen and all(any(11 in shape for shape in shapes) for shapes in seen), method


class _OwnBias(layers.Positions):
    def bias(self, query_positions, key_positions):
        steps = ops.cast(layers.positions.base.distances(query_positions, key_positions), "float32")
        return (steps - ops.max(steps))[None]


def test_positions_of_ones_own_see_all_keys():
    found = []
    for implementation in ("dense", "blockwise"):
        keras.utils.set_random_seed(3)
        layer = layers.MultiHeadAttention(2, 4, positions=_OwnBias(), implementation=implementation)
        found.append(to_numpy(layer(random_array((B, 7, D), 1), random_array((B, 11, D), 2))))
    np.testing.assert_allclose(*found, atol=1e-6)


@tensorflow_only("walks a TensorFlow graph")
def test_no_tensor_grows_with_both_lengths():
    import tensorflow as tf

    layer = layers.ScaledDotProductAttention(implementation="blockwise")

    @tf.function(input_signature=[tf.TensorSpec((1, length, 4)) for length in (128, 128)], autograph=False)
    def forward_and_backward(query, value):
        with tf.GradientTape() as tape:
            tape.watch((query, value))
            output = layer(query, value, use_causal_mask=True)
        return tape.gradient(output, (query, value))

    graph = forward_and_backward.get_concrete_function().graph
    graphs = [graph, *(function.graph for function in graph._functions.values() if hasattr(function, "graph"))]
    sizes = [tensor.shape for part in graphs for operation in part.get_operations() for tensor in operation.outputs]
    assert max(int(np.prod([size or 1 for size in shape])) for shape in sizes if shape.rank) < 128 * 32


def test_dropout_of_tiles_is_the_same_in_both_passes():
    # The output is linear in the values: its gradient there leads back to it, if both passes dropped the same.
    layer = layers.ScaledDotProductAttention(dropout=0.5, seed=3, implementation="blockwise")
    query, value = random_array((B, 7, D), 1), keras.Variable(random_array((B, 11, D), 2))
    direction = random_array((B, 7, D), 3)

    def outputs(training=True):
        layer.dropout_layer.seed_generator.state.assign(np.ones(2, "uint32"))
        return layer(query, ops.convert_to_tensor(value), random_array((B, 11, D), 4), training=training)

    (gradient,) = gradients(lambda: ops.sum(outputs() * ops.convert_to_tensor(direction)), [value])
    dropped = to_numpy(outputs())
    assert not np.allclose(dropped, to_numpy(outputs(training=False)))
    np.testing.assert_allclose(np.sum(gradient * to_numpy(value)), np.sum(dropped * direction), rtol=1e-4)


@needs_tiles
def test_each_tile_drops_weights_of_its_own():
    layer = layers.ScaledDotProductAttention(dropout=0.5, seed=3, implementation="blockwise")
    query, value = np.ones((1, 32, D), "float32"), random_array((1, 32, D), 1)
    assert layer.explain_execution(query, value, use_causal_mask=True, start_index=32).path == "tiles"
    rows = to_numpy(layer(query, value, training=True, use_causal_mask=True, start_index=32))[0]
    assert len(np.unique(rows, axis=0)) == 32
