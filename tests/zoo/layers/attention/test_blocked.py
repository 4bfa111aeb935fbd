"""Windows and blocks: what a dense layer computes under a mask of pairs, at less cost."""

import keras
import numpy as np
import pytest
from support.layers.contract import random_array, random_mask, tensorflow_only, to_numpy
from support.layers.efficient import (
    B,
    D,
    H,
    N,
    V,
    blocked_kinds,
    build_layer,
    make_block,
    make_window,
    near_pairs,
    results_and_gradients,
)
from support.layers.refusals import check_refusals

from zoo import layers
from zoo.layers.attention import linear as linear_attention
from zoo.layers.attention import sliding_window as sliding_window_attention
from zoo.layers.execution import plan, tiles
from zoo.layers.execution.running_softmax import has_running_softmax


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Makes several blocks out of a few positions."""
    monkeypatch.setattr(sliding_window_attention, "MIN_ROWS", 4)
    monkeypatch.setattr(linear_attention, "BLOCK_SIZE", 4)


def _dense_twin(layer):
    config = {name: option for name, option in layer.get_config().items() if name not in ("window", "block_size")}
    dense = layers.MultiHeadAttention.from_config({**config, "name": "dense", "implementation": "dense"})
    dense.build((B, 19, D), (B, 19, D))
    dense.set_weights(layer.get_weights())
    return dense


OPTIONS = {
    "plain": {},
    "additive": {"score": "additive"},
    "rotary": {"positions": layers.RotaryPositions()},
    "shaw": {"positions": layers.ShawRelativePositions(2)},
    "t5": {"positions": layers.T5RelativePositions(6, 5)},
}


def _fresh(options):
    """Returns options whose objects no other layer shares."""
    return {
        name: type(option).from_config(option.get_config()) if isinstance(option, keras.layers.Layer) else option
        for name, option in options.items()
    }


@pytest.mark.nightly  # test_matrix.py holds these layers to the formulas as well
@blocked_kinds
@pytest.mark.parametrize(
    ("name", "implementation"),
    [(name, "auto") for name in OPTIONS] + [("plain", "blockwise"), ("shaw", "blockwise"), ("plain", "fused")],
)
def test_agrees_with_the_dense_layer(make, name, implementation, monkeypatch):
    monkeypatch.setattr(plan, "CHUNK_BUDGET", 500)
    queries, keys, start = lengths = (17, 19, 1)
    # The gradient of a bias of the keys is zero: in float32 it is all rounding.
    layer = build_layer(make(implementation=implementation, dtype="float64", **_fresh(OPTIONS[name])))
    query, value, bias = (random_array(shape, 3) for shape in ((B, queries, D), (B, keys, D), (N, queries, keys)))
    mask = np.random.default_rng(3).random((B, N, queries, keys)) < 0.7
    options = {"value_mask": random_mask((B, keys), 2), "start_index": start, "use_causal_mask": name == "rotary"}
    found = results_and_gradients(layer, query, value, bias, attention_mask=mask, **options)
    expected = results_and_gradients(
        _dense_twin(layer), query, value, bias, attention_mask=mask & near_pairs(layer, *lengths), **options
    )
    for result, reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(result, reference, atol=1e-5 * max(1.0, np.abs(reference).max()))


@blocked_kinds
def test_chunks_of_rows_of_some_and_of_all_blocks_agree(make, monkeypatch):
    layer, inputs = build_layer(make()), random_array((B, 19, D), 1)
    expected = layer(inputs, inputs, return_attention_scores=True)
    layer.implementation = "blockwise"
    for budget in (100, 500, 10**6):
        monkeypatch.setattr(plan, "CHUNK_BUDGET", budget)
        for result, reference in zip(layer(inputs, inputs, return_attention_scores=True), expected, strict=True):
            np.testing.assert_allclose(to_numpy(result), to_numpy(reference), atol=1e-6)


@blocked_kinds
def test_biases_broadcast(make):
    layer, inputs = build_layer(make()), random_array((B, 19, D), 1)
    dense, near = _dense_twin(layer), np.broadcast_to(near_pairs(layer, 19, 19), (B, 19, 19))
    for shape in ((19,), (1, 19), (19, 1), (N, 1, 19), (B, 1, 19, 19), (1, N, 19, 1)):
        bias = random_array(shape, 2)
        expected = dense(inputs, inputs, attention_mask=near, attention_bias=bias)
        found = layer(inputs, inputs, attention_bias=bias)
        np.testing.assert_allclose(to_numpy(found), to_numpy(expected), atol=1e-5, err_msg=str(shape))
    integers = np.zeros((19, 19), "int32")
    check_refusals([(lambda: layer(inputs, inputs, attention_bias=integers), "`attention_bias`", "dtype=int32")])


@blocked_kinds
def test_dropout_in_chunks_is_that_of_one_layer(make, monkeypatch):
    monkeypatch.setattr(plan, "CHUNK_BUDGET", 500)
    layer, inputs = build_layer(make(dropout=0.5, seed=3)), random_array((B, 19, D), 1)
    for implementation in ("dense", "blockwise"):
        layer.implementation = implementation
        plain, weights = layer(inputs, inputs, return_attention_scores=True)
        trained, same = layer(inputs, inputs, return_attention_scores=True, training=True)
        np.testing.assert_allclose(to_numpy(same), to_numpy(weights), atol=1e-6)
        assert not np.allclose(to_numpy(trained), to_numpy(plain))


@blocked_kinds
def test_what_no_window_sees_does_not_leak(make):
    layer, inputs = build_layer(make()), random_array((B, 19, D), 1)
    before = to_numpy(layer(inputs, inputs))
    for place in (0, 7, 18):
        changed = np.where(np.arange(19)[:, None] == place, 1e4, inputs).astype("float32")
        after = to_numpy(layer(inputs, changed))
        blind = ~near_pairs(layer, 19, 19)[:, place]
        np.testing.assert_array_equal(after[:, blind], before[:, blind])
        assert not np.any(np.all(after[:, ~blind] == before[:, ~blind], axis=-1))


@blocked_kinds
def test_steps_return_weights_over_the_room_of_the_cache(make):
    layer, inputs = build_layer(make()), random_array((B, 9, D), 2)
    _, expected = layer(inputs, inputs, use_causal_mask=True, return_attention_scores=True)
    cache = layer.create_cache(B, 11)
    for part in (slice(0, 6), slice(6, 7), slice(7, 9)):
        _, weights, cache = layer(inputs[:, part], inputs[:, part], cache=cache, return_attention_scores=True)
        assert not np.any(to_numpy(weights)[..., 9:])
        np.testing.assert_allclose(to_numpy(weights)[..., :9], to_numpy(expected)[:, :, part], atol=2e-6)


@tensorflow_only("walks a TensorFlow graph")
@blocked_kinds
def test_a_step_looks_at_a_window_of_the_cache(make):
    import tensorflow as tf

    layer = build_layer(make())
    cache = layer.create_cache(B, 1000)

    @tf.function(autograph=False)
    def step(query, value, key, index):
        visibility = layers.visibility.visibility.build_visibility((1, 1000), index, causal=True, heads=True)
        return layer.attend(query, {"key": key, "value": value}, visibility, None, False, False)["output"]

    function = step.get_concrete_function(
        tf.TensorSpec((B, N, 1, H)), cache["value"], cache["key"], tf.TensorSpec((), tf.int32)
    )
    made = [
        operation for operation in function.graph.get_operations() if operation.type in ("GatherV2", "BatchMatMulV2")
    ]
    assert max(int(np.prod(operation.outputs[0].shape)) for operation in made) <= B * N * V * 5


def test_blocked_base_says_what_to_override():
    from zoo.layers.attention.blocked import BlockedAttention

    layer = BlockedAttention(2, 4)
    with pytest.raises(NotImplementedError, match="BlockedAttention must override `allows`"):
        layer.allows(None, None)
    with pytest.raises(NotImplementedError, match="BlockedAttention must override `blocks`"):
        layer.blocks(3, 0, False)


@pytest.mark.skipif(not has_running_softmax(), reason="blocks of all sizes take the place of tiles")
@pytest.mark.parametrize("make", [make_window, pytest.param(make_block, marks=pytest.mark.nightly)])
def test_large_windows_are_computed_in_tiles(make, monkeypatch):
    monkeypatch.setattr(plan, "DENSE_LIMIT", 100)
    inputs = random_array((B, 67, D), 1)
    monkeypatch.setattr(tiles, "SMALLEST_SIDE", 8)
    layer = build_layer(make())
    assert layer.explain_execution(inputs, inputs).path == "tiles"
    in_tiles = to_numpy(layer(inputs, inputs))
    layer.implementation = "dense"
    assert layer.explain_execution(inputs, inputs).path == "dense"
    np.testing.assert_allclose(in_tiles, to_numpy(layer(inputs, inputs)), atol=1e-5)


@pytest.mark.parametrize("make", [make_window, pytest.param(make_block, marks=pytest.mark.nightly)])
def test_a_subclass_that_sees_something_else_is_left_in_blocks(make, monkeypatch):
    monkeypatch.setattr(plan, "DENSE_LIMIT", 100)
    kind = type(make())
    changed = type("Changed", (kind,), {"sees": lambda self, query, key: kind.sees(self, query, key) & (key != query)})
    layer = build_layer(changed.from_config(make(implementation="blockwise").get_config()))
    inputs = random_array((B, 67, D), 1)
    _, weights = layer(inputs, inputs, return_attention_scores=True)
    assert layer.explain_execution(inputs, inputs).path != "tiles"
    assert not np.any(np.diagonal(to_numpy(weights), axis1=2, axis2=3))
