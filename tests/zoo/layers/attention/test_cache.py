"""Caches: prefilling and then going step by step gives what the full causal pass gives."""

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.cases import ATTENTION_CASES, CASES
from support.layers.contract import build, compiled, few_on_jax, gradients, graph_and_xla, random_array, to_numpy
from support.tiers import nightly_unless

from zoo import layers
from zoo.layers.attention import cache as caches
from zoo.layers.attention.state_attention import StateAttention

B, LENGTH, ROOM, D = 2, 7, 11, 11
MULTI_HEAD = [case for case in ATTENTION_CASES if case.covers is layers.MultiHeadAttention]
BY_NAME = {case.name: case for case in CASES}
DECODERS = [case for case in CASES if case.covers is layers.TransformerDecoderBlock]


WITH_CACHES = {
    "additive": lambda: layers.AdditiveAttention(19),
    "multi_head": lambda: layers.MultiHeadAttention(7, 19),
    "rotary": lambda: layers.MultiHeadAttention(7, 19, positions=layers.RotaryPositions()),
    "alibi": lambda: layers.MultiHeadAttention(7, 19, positions=layers.ALiBiPositions()),
    "grouped": lambda: layers.GroupedQueryAttention(6, 2, 19),
    "latent": lambda: layers.MultiHeadLatentAttention(7, 19, latent_dim=31, rope_dim=6),
    "talking": lambda: layers.TalkingHeadsAttention(7, 19, output_gate=True),
    "differential": lambda: layers.DifferentialAttention(7, 19, positions=layers.RotaryPositions()),
    "monotonic": lambda: layers.LocalAttention(2, score="dot"),
    "sliding": lambda: layers.SlidingWindowAttention(7, 19, window=2),
    "block_local": lambda: layers.BlockLocalAttention(7, 19, block_size=3),
    "linear": lambda: layers.LinearAttention(7, 19, positions=layers.RotaryPositions()),
    "gated_linear": lambda: layers.GatedLinearAttention(7, 19),
    "delta_rule": lambda: layers.DeltaRuleAttention(7, 19),
    "retention": lambda: layers.MultiScaleRetention(7, 19),
    "performer": lambda: layers.PerformerAttention(7, 19, num_features=13),
    "self": lambda: layers.SelfAttention(19, score="additive", use_bias=True),
    "location": lambda: layers.MultiHeadAttention(7, 19, score="location", share_score=False),
    "heads alone": lambda: layers.GroupedQueryAttention(6, 2, 19, score="cosine", share_score=False),
}


ALIKE = (
    "multi_head",
    "alibi",
    "talking",
    "block_local",
    "gated_linear",
    "performer",
    "self",
    "heads alone",
)
NO_KEYS = (layers.LinearAttention, StateAttention)  # whose caches have no weights
ROOMS = pytest.mark.parametrize("room", [ROOM, None], ids=["room", "grows"])


def check_steps(layer, chunks, room):
    """Checks that prefilling and then going step by step gives what the full causal pass gives."""
    inputs, mask = random_array((B, LENGTH, D), 1), np.ones((B, ROOM), bool)
    mask[0, :2] = False  # padded at the front
    options = {} if isinstance(layer, NO_KEYS) else {"return_attention_scores": True}
    expected, *weights = _as_list(layer(inputs, inputs, value_mask=mask[:, :LENGTH], use_causal_mask=True, **options))
    cache, start = layer.create_cache(B, room), 0
    for length in chunks:
        part, start = slice(start, start + length), start + length
        seen = mask[:, : room or start]
        output, *scores, cache = layer(inputs[:, part], inputs[:, part], value_mask=seen, cache=cache, **options)
        assert output.shape == (B, length, expected.shape[-1])
        np.testing.assert_allclose(to_numpy(output), expected[:, part], atol=2e-6)
        for found, whole in zip(map(to_numpy, scores), weights, strict=True):
            assert found.shape[-1] == (room or start) and not np.any(found[..., start:])
            np.testing.assert_allclose(found[..., :start], whole[..., part, :start], atol=2e-6)
        assert int(caches.next_position(cache)) == start
    if not isinstance(layer, NO_KEYS):
        assert not np.any(to_numpy(cache["value"])[..., LENGTH:, :])


def _as_list(results):
    return [to_numpy(result) for result in (results if isinstance(results, tuple) else (results,))]


def check_cross_steps(layer, queries, room):
    """Checks that the queries of a step are at the end of its keys, as when a source of cross-attention goes on."""
    inputs = random_array((B, LENGTH, D), 1)
    cache, start = layer.create_cache(B, room), 0
    for length in (3, 4):  # more keys than queries
        part, start = inputs[:, start : start + length], start + length
        query = inputs[:, start - queries : start]
        output, cache = layer(query, part, cache=cache)
        expected = layer(query, inputs[:, :start], use_causal_mask=True)
        np.testing.assert_allclose(to_numpy(output), to_numpy(expected), atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("name", nightly_unless(lambda name: name not in ALIKE, WITH_CACHES))
def test_steps_equal_the_full_pass(name):
    few_on_jax(name in COMPILED)
    layer = WITH_CACHES[name]()
    layer.build((B, LENGTH, D), (B, LENGTH, D))
    check_steps(layer, (3, 0, 1, 1, 2), ROOM)  # also steps of no positions
    check_steps(layer, (0, 3, 4), None)
    check_cross_steps(layer, 2, ROOM)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*(case.name for case in MULTI_HEAD), *WITH_CACHES])
@ROOMS
def test_steps_of_all_kinds_equal_the_full_pass(name, room):
    layer = WITH_CACHES[name]() if name in WITH_CACHES else BY_NAME[name].make("float32")
    layer.build((B, LENGTH, D), (B, LENGTH, D))
    for chunks in ((3, 0, 1, 1, 2), (7,), (1,) * 7):
        check_steps(layer, chunks, room)
    for queries in (1, 2):
        check_cross_steps(layer, queries, room)


@ROOMS
def test_a_step_may_have_more_queries_than_keys(room):
    inputs = random_array((B, LENGTH, D), 1)
    layer = layers.MultiHeadAttention(7, 19, positions=layers.RotaryPositions())
    expected = to_numpy(layer(inputs[:, 1:], inputs, use_causal_mask=True))
    _, cache = layer(inputs[:, :3], inputs[:, :3], cache=layer.create_cache(B, room))
    output, _ = layer(inputs[:, 1:], inputs[:, 3:], cache=cache)
    np.testing.assert_allclose(to_numpy(output), expected, atol=2e-6)
    layer = layers.LinearAttention(7, 19)
    layer.build(inputs.shape, inputs.shape)
    with pytest.raises(ValueError, match="6 queries and 4 values"):
        layer(inputs[:, 1:], inputs[:, 3:], cache=layer.create_cache(B))


COMPILED = ("grouped", "sliding", "linear")


@pytest.mark.parametrize("name", nightly_unless(COMPILED.__contains__, WITH_CACHES))
@graph_and_xla
def test_one_compiled_step_serves_all_positions(name, xla):
    layer, inputs = WITH_CACHES[name](), random_array((B, LENGTH, D), 2)
    expected = to_numpy(layer(inputs, inputs, use_causal_mask=True))
    cache = layer.create_cache(B, LENGTH)
    names = list(cache)

    def step(inputs, *values):
        output, cache = layer(inputs, inputs, cache=dict(zip(names, values, strict=True)))
        return output, *(cache[name] for name in names)

    step, values = compiled(step, xla), cache.values()
    for position in range(LENGTH):
        output, *values = step(ops.convert_to_tensor(inputs[:, position : position + 1]), *values)
        np.testing.assert_allclose(to_numpy(output)[:, 0], expected[:, position], atol=5e-6)


@pytest.mark.parametrize(
    "case", nightly_unless(lambda case: case.name != "rms_norm_decoder_block", DECODERS), ids=lambda case: case.name
)
def test_decoder_block_steps_equal_the_full_pass(case):
    """Also where rows share a memory."""
    block, sharing = build(case), 3
    inputs, memory = random_array((B * sharing, LENGTH, 11), 3), random_array((B, 5, 13), 4)
    mask = np.array([[True] * 5, [True] * 3 + [False] * 2])
    repeated = {"memory_mask": np.repeat(mask, sharing, axis=0), "return_attention_scores": True}
    expected, weights = map(to_numpy, block(inputs, np.repeat(memory, sharing, axis=0), **repeated))
    projected = block.project_memory(ops.convert_to_tensor(memory))
    own = {"memory_mask": mask, "return_attention_scores": True}
    depends = getattr(block.cross_attention, "needs_query_position", False)
    for rows, options in ((slice(None, None, sharing), own), (slice(None), {**own, "sharing": sharing})):
        cache = block.self_attention.create_cache(len(inputs[rows]), ROOM)
        if depends and "sharing" in options:
            with pytest.raises(ValueError, match="share a memory"):
                block(inputs[rows, :1], projected, cache=cache, **options)
            continue
        for position in range(LENGTH):
            output, scores, cache = block(inputs[rows, position : position + 1], projected, cache=cache, **options)
            np.testing.assert_allclose(to_numpy(output)[:, 0], expected[rows, position], atol=1e-5)
            np.testing.assert_allclose(to_numpy(scores)[:, :, 0], weights[rows, :, position], atol=1e-5)


def test_cache_is_in_the_compute_dtype():
    layer = layers.MultiHeadAttention(7, 19, value_dim=23, dtype="mixed_bfloat16")
    layer.build((B, LENGTH, D), (B, LENGTH, D))
    cache = layer.create_cache(B, ROOM)
    assert (cache["key"].shape, cache["value"].shape) == ((B, 7, ROOM, 19), (B, 7, ROOM, 23))
    inputs = random_array((B, 1, D), 5)
    _, cache = layer(inputs, inputs, cache=cache)
    assert {keras.backend.standardize_dtype(cache[name].dtype) for name in ("key", "value")} == {"bfloat16"}


def test_write_by_hand():
    update = np.array([[1, 2], [3, 4]], "float32")
    for index in (0, 2, 4):
        buffer = np.zeros((5, 2), "float32")
        written = to_numpy(caches.write(ops.convert_to_tensor(buffer), ops.convert_to_tensor(update), index))
        room = min(2, 5 - index)  # what does not fit is dropped
        buffer[index : index + room] = update[:room]
        np.testing.assert_array_equal(written, buffer)


def test_masked_queries_may_be_nan():
    layer, mask = layers.MultiHeadAttention(7, 19), np.arange(LENGTH)[None] < 5
    inputs = random_array((B, LENGTH, D), 1)
    queries = np.where(mask[..., None], inputs, np.nan).astype("float32")
    layer.build(inputs.shape, inputs.shape)
    cache = layer.create_cache(B)

    def loss():
        return ops.sum(layer(queries, inputs, cache=cache, query_mask=mask)[0])

    assert all(np.isfinite(gradient).all() for gradient in gradients(loss, layer.variables))
