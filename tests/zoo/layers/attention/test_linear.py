"""Linear attention: sums of features, and their cache."""

from functools import partial

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.contract import gradients, random_array, random_mask, to_numpy
from support.layers.efficient import B, D, H, N, V, build_layer, identity_layer, linear_kinds, results_and_gradients
from support.layers.refusals import check_refusals

from zoo import layers
from zoo.layers.attention import linear as linear_attention
from zoo.layers.attention import sliding_window as sliding_window_attention


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Makes several blocks out of a few positions."""
    monkeypatch.setattr(sliding_window_attention, "MIN_ROWS", 4)
    monkeypatch.setattr(linear_attention, "BLOCK_SIZE", 4)


def test_linear_weights_by_hand():
    # φ(1) = 2, φ(0) = 1, φ(−ln 2) = 1/2: the weights of the keys are as 4 : 2 : 1 for any query.
    layer, query = identity_layer(layers.LinearAttention(1, 1)), np.array([[[5.0], [-5.0]]], "float32")
    key = np.array([[[3.0], [1.0], [0.0]]], "float32")
    value = np.array([[[7.0], [14.0], [0.0]]], "float32")
    output, weights = layer(query, value, key, return_attention_scores=True)
    np.testing.assert_allclose(to_numpy(weights)[0, 0], [[4 / 7, 2 / 7, 1 / 7]] * 2, rtol=1e-6)
    np.testing.assert_allclose(to_numpy(output)[0, :, 0], [8, 8], rtol=1e-6)


@linear_kinds
def test_pairs_and_sums_agree(make):
    layer, inputs = build_layer(make()), random_array((B, 19, D), 1)
    query_mask, value_mask = random_mask((B, 19), 1), random_mask((B, 19), 2)
    value_mask[0] = False
    everything, zero = np.ones((B, 19, 19), bool), np.zeros((N, 19, 19), "float32")
    for causal in (False, True):
        masks = {"query_mask": query_mask, "value_mask": value_mask, "use_causal_mask": causal}
        expected = results_and_gradients(layer, inputs, inputs, zero, **masks)  # by pairs, for the bias
        variables = [keras.Variable(inputs) for _ in range(2)]

        def run(masks=masks, variables=variables):
            return layer(*(ops.convert_to_tensor(each) for each in variables), return_attention_scores=True, **masks)

        def loss(run=run):
            return sum(ops.sum(ops.sin(7 * result)) for result in run())

        found = [to_numpy(result) for result in run()] + gradients(loss, variables + layer.trainable_variables)
        for result, reference in zip(found, expected[:4] + expected[5:], strict=True):
            np.testing.assert_allclose(result, reference, atol=2e-5 * max(1.0, np.abs(reference).max()))
        for implementation in ("dense", "blockwise"):
            layer.implementation = implementation
            np.testing.assert_allclose(to_numpy(layer(inputs, inputs, **masks)), found[0], atol=1e-5)
        layer.implementation = "auto"
        alike = layer(inputs, inputs, attention_mask=everything, **masks)
        np.testing.assert_allclose(to_numpy(alike), found[0], atol=1e-5)


@linear_kinds
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_sums_are_wide_in_low_precision(make, policy):
    """A sum of 700 equal products would stop growing at 256 of them in bfloat16."""
    layer = make(dtype=policy)
    layer.build((1, 700, D), (1, 700, D))
    inputs = np.tile(random_array((1, 1, D), 1), (1, 700, 1))
    values = np.concatenate([np.zeros((1, 350, D)), np.ones((1, 350, D))], axis=1).astype("float32")
    layer.value_dense.bias.assign(np.ones(N * V))
    output = to_numpy(layer(inputs, values, inputs, use_causal_mask=True))
    half, whole = (to_numpy(layer(inputs[:, :1], values[:, part])) for part in (slice(1), slice(-1, None)))
    np.testing.assert_allclose(output[:, -1], (half + whole)[:, 0] / 2, atol=0.05)
    np.testing.assert_allclose(output[:, 300], half[:, 0], atol=0.02)


@linear_kinds
def test_large_inputs_stay_finite(make):
    layer = build_layer(make())
    for scale in (1e3, 1e6):
        inputs = keras.Variable(random_array((B, 19, D), 1) * scale)

        def output(inputs=inputs):
            tensor = ops.convert_to_tensor(inputs)
            return layer(tensor, tensor, use_causal_mask=True)

        assert np.all(np.isfinite(to_numpy(output())))
        for gradient in gradients(lambda output=output: ops.sum(ops.tanh(output())), [inputs]):
            assert np.all(np.isfinite(gradient))


@linear_kinds
def test_the_cache_of_sums_does_not_grow_and_keeps_float32(make):
    layer = build_layer(make(dtype="mixed_bfloat16"))
    cache = layer.create_cache(B, 1000)
    features = 13 if isinstance(layer, layers.PerformerAttention) else H
    assert cache["sums"].shape == (B, N, features, V + 1)
    inputs = random_array((B, 240, D), 1)
    _, at_once = layer(inputs, inputs, cache=cache)
    for part in np.split(inputs, 6, axis=1):
        _, cache = layer(part, part, cache=cache)
    sums = [to_numpy(ops.view(each["sums"], "float32")) for each in (cache, at_once)]
    np.testing.assert_allclose(*sums, rtol=1e-4, atol=1e-3)
    with pytest.raises(ValueError, match=r"`value_mask` must be \[B, T\], T = 240"):
        layer(inputs, inputs, value_mask=np.ones((B, 3), bool), cache=cache)
    with pytest.raises(ValueError, match="with `cache`.* `memory`"):
        layer(inputs, None, memory=layer.project_memory(inputs), cache=cache)


@linear_kinds
def test_a_block_of_lower_precision_does_not_round_the_cache(make):
    block = layers.TransformerEncoderBlock(make(), layers.FeedForward(7), dtype="mixed_bfloat16")
    inputs = random_array((1, 20, D), 1)
    block(inputs)
    empty = cache = block.attention.create_cache(1)
    _, at_once = block(inputs, cache=empty)
    for part in np.split(inputs, 20, axis=1):
        _, cache = block(part, cache=cache)
    sums = [to_numpy(ops.view(each["sums"], "float32")) for each in (cache, at_once)]
    np.testing.assert_allclose(*sums, rtol=1e-4, atol=1e-3)


@linear_kinds
def test_what_a_cache_of_sums_refuses(make):
    layer, inputs = build_layer(make()), random_array((B, 1, D), 1)
    cache = layer.create_cache(B, 9)
    check_refusals(
        (partial(layer, inputs, inputs, cache=cache, **{name: option}), f"`{name}`", type(layer).__name__)
        for name, option in {
            "return_attention_scores": True,
            "attention_mask": np.ones((B, 1, 9), bool),
            "attention_bias": np.zeros((1, 9), "float32"),
            "start_index": 3,
        }.items()
    )


@linear_kinds
def test_what_a_subclass_overrides_wins_over_sums(make):
    base, inputs, changes = type(make()), random_array((B, 7, D), 1), []

    def override(method):
        def changed(self, *arguments):
            changes.append(method)
            return getattr(base, method)(self, *arguments)

        return type(f"Changed{base.__name__}", (base,), {method: changed})

    for method in ("compare", "normalize", "weighted_sum", "sum_heads", "attend_rows"):
        layer = override(method).from_config(make().get_config())
        layer(inputs, inputs, use_causal_mask=True)
        assert method in changes
        check_refusals([(partial(layer.create_cache, B), "compare", "cache")])


@linear_kinds
def test_features_of_ones_own_have_sums(make):
    base = type(make())
    own = type(f"Own{base.__name__}", (base,), {"query_features": lambda self, query: ops.exp(query[..., :1])})
    assert own.from_config(make().get_config()).create_cache(B)
