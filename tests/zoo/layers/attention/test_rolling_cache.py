"""Rolling caches: no more than the window is kept, and every step gives what the whole sequence gives."""

from functools import partial

import numpy as np
import pytest
from keras import ops
from support.layers.contract import compiled, graph_and_xla, random_array, to_numpy
from support.layers.refusals import check_refusals
from support.tiers import nightly_unless

import zoo
from zoo import layers

B, LENGTH, D = 2, 23, 11
INPUTS = random_array((B, LENGTH, D), 1)
WINDOWS = {
    "sliding": (lambda: layers.SlidingWindowAttention(7, 19, 3, positions=layers.RotaryPositions()), 3),
    "block_local": (lambda: layers.BlockLocalAttention(7, 19, block_size=5), 4),
    "one position": (lambda: layers.MultiHeadAttention(3, 5, visibility=layers.SlidingWindow(0, 0)), 0),
    "grouped": (
        lambda: layers.GroupedQueryAttention(
            6, 2, 19, visibility=layers.SlidingWindow(5), positions=layers.ALiBiPositions()
        ),
        5,
    ),
    "combined": (
        lambda: layers.MultiHeadAttention(
            3,
            5,
            visibility=(layers.Dilated(2, 3) | layers.SlidingWindow(1, 0)) & layers.Causal(),
            positions=layers.T5RelativePositions(6, 5),
        ),
        6,
    ),
    "latent": (
        lambda: layers.MultiHeadLatentAttention(
            7, 19, latent_dim=31, rope_dim=6, visibility=layers.SlidingWindow(4, 0), output_gate=True
        ),
        4,
    ),
    "additive": (
        lambda: layers.AdditiveAttention(5, visibility=layers.LocalBlocks(3), normalization="sink"),
        2,
    ),
    "differential": (lambda: layers.DifferentialAttention(3, 5, visibility=layers.SlidingWindow(2, 0)), 2),
    "sinks": (
        lambda: layers.GroupedQueryAttention(
            6,
            2,
            19,
            visibility=layers.SlidingWindow(5) | layers.GlobalTokens([0, 3]),
            positions=layers.ALiBiPositions(),
        ),
        5,
    ),
    "sinks alone": (
        lambda: layers.MultiHeadAttention(
            3, 5, visibility=layers.GlobalTokens([1]) & layers.Causal(), positions=layers.ShawRelativePositions(3)
        ),
        0,
    ),
    "sinks in blocks": (
        lambda: layers.AdditiveAttention(5, visibility=layers.LocalBlocks(3) | layers.GlobalTokens(range(7))),
        2,
    ),
}
KEPT_FIRST = {"sinks": 4, "sinks alone": 2, "sinks in blocks": 7}


def _layer(name):
    make, window = WINDOWS[name]
    layer = make()
    layer.build(INPUTS.shape, INPUTS.shape)
    return layer, window


FEW = ("latent", "sinks")


@pytest.mark.parametrize("name", nightly_unless(FEW.__contains__, WINDOWS))
def test_steps_equal_the_full_pass_and_keep_the_window(name):
    (layer, window), first = _layer(name), KEPT_FIRST.get(name, 0)
    mask = np.ones((B, LENGTH), bool)
    mask[0, :2] = mask[1, 9] = False
    poisoned = np.where(mask[:, :, None], INPUTS, np.float32(np.nan))
    expected, whole = layer(INPUTS, INPUTS, value_mask=mask, use_causal_mask=True, return_attention_scores=True)
    cache, start = layer.create_cache(B, rolling=True), 0
    for length in (1, 5, 1, 1, 9, 1, 2, 3):
        part, start = slice(start, start + length), start + length
        output, weights, cache = layer(
            INPUTS[:, part], poisoned[:, part], value_mask=mask[:, part], cache=cache, return_attention_scores=True
        )
        np.testing.assert_allclose(to_numpy(output), to_numpy(expected)[:, part], atol=2e-6)
        kept = [*range(first), *range(start - window - length, start)]
        assert weights.shape[-1] == len(kept)
        placed = np.zeros((*weights.shape[:-1], LENGTH))
        for column, position in enumerate(kept):
            if position >= first or column < first:
                placed[..., position] = to_numpy(weights)[..., column]
            else:  # before the first one, or at its own place as well
                assert not to_numpy(weights)[..., column].any()
        np.testing.assert_allclose(placed, to_numpy(whole)[..., part, :], atol=2e-6)
        room = first + window
        assert {name: cache[name].shape[-2] for name in ("key", "value")} == {"key": room, "value": room}
        assert int(cache["index"]) == start


@graph_and_xla
@pytest.mark.parametrize("name", [pytest.param("sliding", marks=pytest.mark.nightly), "sinks"])
def test_one_compiled_step_serves_all_positions(name, xla):
    layer, _ = _layer(name)
    expected = to_numpy(layer(INPUTS, INPUTS, use_causal_mask=True))
    names = ("key", "value", "real", "index")

    def step(inputs, *cache):
        output, cache = layer(inputs, inputs, cache=dict(zip(names, cache, strict=True)))
        return output, *(cache[name] for name in names)

    step, cache = compiled(step, xla), [layer.create_cache(B, rolling=True)[name] for name in names]
    for position in range(LENGTH):
        output, *cache = step(ops.convert_to_tensor(INPUTS[:, position : position + 1]), *cache)
        np.testing.assert_allclose(to_numpy(output)[:, 0], expected[:, position], atol=2e-6)


def test_pairs_are_masked_by_what_is_kept():
    layer, window = _layer("grouped")
    allowed = np.tril(np.random.default_rng(5).random((B, LENGTH, LENGTH)) < 0.7)
    bias = random_array((LENGTH, LENGTH), 7)
    expected = to_numpy(layer(INPUTS, INPUTS, attention_mask=allowed, attention_bias=bias, use_causal_mask=True))
    _, cache = layer(
        INPUTS[:, :9],
        INPUTS[:, :9],
        cache=layer.create_cache(B, rolling=True),
        attention_mask=np.pad(allowed[:, :9, :9], ((0, 0), (0, 0), (window, 0))),
        attention_bias=np.pad(bias[:9, :9], ((0, 0), (window, 0))),
    )
    part, kept = slice(9, 11), slice(9 - window, 11)
    output, _ = layer(
        INPUTS[:, part],
        INPUTS[:, part],
        cache=cache,
        attention_mask=allowed[:, part, kept],
        attention_bias=bias[part, kept],
    )
    np.testing.assert_allclose(to_numpy(output), expected[:, part], atol=2e-6)


def test_decoders_keep_no_more_than_their_window():
    model = zoo.create_model("causal_lm_tiny", vocab_size=13, self_attention="local", window=3)
    tokens = np.random.default_rng(1).integers(1, 13, (B, 11)).astype("int32")
    expected = to_numpy(model({"tokens": tokens}))
    logits, state = model.prefill(tokens[:, :5], model.initial_state(B, 50))
    for position in range(5, 11):
        np.testing.assert_allclose(to_numpy(logits), expected[:, position - 1], atol=2e-5)
        logits, state = model.prefill(tokens[:, position : position + 1], state)
    assert {cache["key"].shape[-2] for cache in state["caches"]} == {3}


def _roll(layer):
    layer.build(INPUTS.shape, INPUTS.shape)
    return partial(layer.create_cache, B, rolling=True)


def test_what_is_refused():
    """Layers without a window have no rolling cache, and queries before the new keys are not taken."""
    heads = partial(layers.MultiHeadAttention, 3, 5)
    in_window = layers.SlidingWindow(4)
    layer, _ = _layer("sliding")
    cache = layer.create_cache(B, rolling=True)
    check_refusals(
        [
            (_roll(heads()), "`visibility=SlidingWindow(128)`", "None"),
            (_roll(heads(visibility=layers.Causal())), "visibility=Causal()"),
            (_roll(heads(visibility=in_window & layers.Segments())), "Segments()"),
            (_roll(heads(visibility=layers.Causal() | layers.GlobalTokens([0]))), "GlobalTokens"),
            (_roll(heads(visibility=in_window & layers.TopBlocks(2, 1))), "TopBlocks"),
            (_roll(layers.Attention(layers.LocationScore(29), visibility=in_window)), "SlidingWindow"),
            (lambda: layer(INPUTS[:, :2], INPUTS[:, :1], cache=cache), "2 queries and 1 values"),
        ]
    )


def test_blocks_mask_the_steps_of_a_rolling_cache():
    attention = layers.MultiHeadAttention(3, 5, visibility=layers.SlidingWindow(4, 0))
    block, mask = layers.TransformerEncoderBlock(attention, layers.FeedForward(7)), np.ones((B, LENGTH), bool)
    mask[0, :3] = mask[1, 9] = False
    expected = to_numpy(block(INPUTS, mask=mask))
    cache = attention.create_cache(B, rolling=True)
    for start in range(0, LENGTH, 2):
        part = slice(start, start + 2)
        output, cache = block(INPUTS[:, part], mask=mask[:, part], cache=cache)
        np.testing.assert_allclose(to_numpy(output), expected[:, part], atol=5e-6)
