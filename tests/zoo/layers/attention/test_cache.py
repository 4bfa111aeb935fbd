"""Caches: prefilling and then going step by step gives what the full causal pass gives."""

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.cases import ATTENTION_CASES, CASES
from support.layers.contract import build, compiled, graph_and_xla, random_array, to_numpy

from zoo import layers
from zoo.layers.attention import cache as caches

B, LENGTH, ROOM, D = 2, 7, 11, 11
MULTI_HEAD = [case for case in ATTENTION_CASES if case.covers is layers.MultiHeadAttention]
DECODERS = [case for case in CASES if case.covers is layers.TransformerDecoderBlock]


def _self_attention(case):
    layer = case.make("float32")
    layer.build((B, LENGTH, D), (B, LENGTH, D))
    return layer


@pytest.mark.parametrize("case", MULTI_HEAD, ids=lambda case: case.name)
@pytest.mark.parametrize("room", [ROOM, None], ids=["room", "grows"])
@pytest.mark.parametrize(
    "chunks", [(3, 1, 1, 2), *(pytest.param(chunks, marks=pytest.mark.nightly) for chunks in ((7,), (1,) * 7))], ids=str
)
def test_prefill_and_steps_equal_the_full_pass(case, chunks, room):
    layer, inputs = _self_attention(case), random_array((B, LENGTH, D), 1)
    mask = np.ones((B, ROOM), bool)
    mask[0, :2] = False  # padded at the front
    expected, weights = layer(
        inputs, inputs, value_mask=mask[:, :LENGTH], use_causal_mask=True, return_attention_scores=True
    )
    cache, start = layer.create_cache(B, room), 0
    for length in chunks:
        part, start = slice(start, start + length), start + length
        seen = mask[:, : room or start]
        output, scores, cache = layer(
            inputs[:, part], inputs[:, part], value_mask=seen, cache=cache, return_attention_scores=True
        )
        np.testing.assert_allclose(to_numpy(output), to_numpy(expected)[:, part], atol=2e-6)
        np.testing.assert_allclose(to_numpy(scores)[..., :start], to_numpy(weights)[:, :, part, :start], atol=2e-6)
        assert scores.shape[-1] == (room or start) and not np.any(to_numpy(scores)[..., start:])
        assert int(caches.position(cache)) == start
    assert not np.any(to_numpy(cache["value"])[..., LENGTH:, :])


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
}


@pytest.mark.parametrize("name", WITH_CACHES)
@pytest.mark.parametrize("room", [ROOM, None], ids=["room", "grows"])
def test_steps_of_no_positions_change_nothing(name, room):
    layer, inputs = WITH_CACHES[name](), random_array((B, LENGTH, D), 1)
    layer.build((B, LENGTH, D), (B, LENGTH, D))
    expected = to_numpy(layer(inputs, inputs, use_causal_mask=True))
    cache, start = layer.create_cache(B, room), 0
    for length in (0, 3, 0, LENGTH - 3):
        part, start = slice(start, start + length), start + length
        output, cache = layer(inputs[:, part], inputs[:, part], cache=cache)
        assert output.shape == (B, length, expected.shape[-1])
        np.testing.assert_allclose(to_numpy(output), expected[:, part], atol=2e-6)


@pytest.mark.parametrize("name", WITH_CACHES)
@pytest.mark.parametrize("room", [ROOM, pytest.param(None, marks=pytest.mark.nightly)], ids=["room", "grows"])
@pytest.mark.parametrize("queries", [pytest.param(1, marks=pytest.mark.nightly), 2])
def test_queries_of_a_step_are_at_the_end_of_its_keys(name, room, queries):
    layer, inputs = WITH_CACHES[name](), random_array((B, LENGTH, D), 1)
    layer.build((B, queries, D), (B, LENGTH, D))
    cache, start = layer.create_cache(B, room), 0
    for length in (3, 4):  # more keys than queries, as in a step of cross-attention to a source that goes on
        part, start = inputs[:, start : start + length], start + length
        query = inputs[:, start - queries : start]
        output, cache = layer(query, part, cache=cache)
        expected = layer(query, inputs[:, :start], use_causal_mask=True)
        np.testing.assert_allclose(to_numpy(output), to_numpy(expected), atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("room", [ROOM, None], ids=["room", "grows"])
def test_a_step_may_have_more_queries_than_keys(room):
    layer, inputs = (
        layers.MultiHeadAttention(7, 19, positions=layers.RotaryPositions()),
        random_array((B, LENGTH, D), 1),
    )
    expected = to_numpy(layer(inputs[:, 1:], inputs, use_causal_mask=True))
    _, cache = layer(inputs[:, :3], inputs[:, :3], cache=layer.create_cache(B, room))
    output, _ = layer(inputs[:, 1:], inputs[:, 3:], cache=cache)
    np.testing.assert_allclose(to_numpy(output), expected, atol=2e-6)
    layer = layers.LinearAttention(7, 19)
    layer.build(inputs.shape, inputs.shape)
    with pytest.raises(ValueError, match="at least as many values as queries. Received: 6 queries and 4 values"):
        layer(inputs[:, 1:], inputs[:, 3:], cache=layer.create_cache(B))


@pytest.mark.parametrize("case", MULTI_HEAD, ids=lambda case: case.name)
@graph_and_xla
def test_one_compiled_step_serves_all_positions(case, xla):
    layer, inputs = _self_attention(case), random_array((B, LENGTH, D), 2)
    expected = to_numpy(layer(inputs, inputs, use_causal_mask=True))

    def step(inputs, key, value, index):
        output, cache = layer(inputs, inputs, cache={"key": key, "value": value, "index": index})
        return output, cache["key"], cache["value"], cache["index"]

    step = compiled(step, xla)
    cache = layer.create_cache(B, LENGTH)
    cache = cache["key"], cache["value"], cache["index"]
    for position in range(LENGTH):
        output, *cache = step(ops.convert_to_tensor(inputs[:, position : position + 1]), *cache)
        np.testing.assert_allclose(to_numpy(output)[:, 0], expected[:, position], atol=2e-6)


@pytest.mark.parametrize("case", DECODERS, ids=lambda case: case.name)
def test_decoder_block_steps_equal_the_full_pass(case):
    block = build(case)
    inputs, memory = random_array((B, LENGTH, 11), 3), random_array((B, 5, 13), 4)
    memory_mask = np.array([[True] * 5, [True] * 3 + [False] * 2])
    options = {"memory_mask": memory_mask, "return_attention_scores": True}
    expected, weights = block(inputs, memory, **options)
    projected = block.project_memory(ops.convert_to_tensor(memory))
    cache = block.self_attention.create_cache(B, ROOM)
    for position in range(LENGTH):
        output, scores, cache = block(inputs[:, position : position + 1], projected, cache=cache, **options)
        np.testing.assert_allclose(to_numpy(output)[:, 0], to_numpy(expected)[:, position], atol=1e-5)
        np.testing.assert_allclose(to_numpy(scores)[:, :, 0], to_numpy(weights)[:, :, position], atol=1e-5)


@pytest.mark.parametrize("case", DECODERS, ids=lambda case: case.name)
def test_rows_that_share_a_memory_are_as_rows_with_one_each(case):
    block, sharing = build(case), 3
    inputs, memory = random_array((B * sharing, LENGTH, 11), 3), random_array((B, 5, 13), 4)
    mask = np.array([[True] * 5, [True] * 3 + [False] * 2])
    repeated = {"memory_mask": np.repeat(mask, sharing, axis=0), "return_attention_scores": True}
    expected, weights = block(inputs, np.repeat(memory, sharing, axis=0), **repeated)
    projected = block.project_memory(ops.convert_to_tensor(memory))
    cache = block.self_attention.create_cache(B * sharing)
    options = {"memory_mask": mask, "return_attention_scores": True, "sharing": sharing}
    for position in range(LENGTH):
        row = inputs[:, position : position + 1]
        if getattr(block.cross_attention, "needs_query_position", False):
            with pytest.raises(ValueError, match="Rows cannot share a memory whose attention depends on the positions"):
                block(row, projected, cache=cache, **options)
            break
        output, scores, cache = block(row, projected, cache=cache, **options)
        np.testing.assert_allclose(to_numpy(output)[:, 0], to_numpy(expected)[:, position], atol=1e-5)
        np.testing.assert_allclose(to_numpy(scores)[:, :, 0], to_numpy(weights)[:, :, position], atol=1e-5)


def test_cache_is_in_the_compute_dtype():
    layer = layers.MultiHeadAttention(7, 19, value_dim=23, dtype="mixed_bfloat16")
    layer.build((B, LENGTH, D), (B, LENGTH, D))
    cache = layer.create_cache(B, ROOM)
    assert (cache["key"].shape, cache["value"].shape) == ((B, 7, ROOM, 19), (B, 7, ROOM, 23))
    inputs = random_array((B, 1, D), 5)
    _, cache = layer(inputs, inputs, cache=cache)
    assert {keras.backend.standardize_dtype(cache[name].dtype) for name in ("key", "value")} == {"bfloat16"}


@pytest.mark.parametrize("index", [0, 2, 4])
def test_write_by_hand(index):
    buffer, update = np.zeros((5, 2), "float32"), np.array([[1, 2], [3, 4]], "float32")
    written = to_numpy(caches.write(ops.convert_to_tensor(buffer), ops.convert_to_tensor(update), index))
    room = min(2, 5 - index)  # what does not fit is dropped
    buffer[index : index + room] = update[:room]
    np.testing.assert_array_equal(written, buffer)
