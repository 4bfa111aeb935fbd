"""Rules of visibility: what they combine to, which blocks they skip, what they need, and how they are saved."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from support.layers import references
from support.layers.contract import random_array, to_numpy
from support.layers.descriptions import COMBINED

from zoo import layers
from zoo.layers.visibility.base import Blocks, Pairs, Range

B, N, T, S = 2, 3, 7, 11
INPUTS = random_array((B, S, 8), 1)


def all_pairs(batch, head, query, key):
    return query == query


def _pairs(first, told):
    shapes = {"query_segment_ids": (B, 1, T, 1), "segment_ids": (B, 1, 1, S), "prefix_length": (B, 1, 1, 1)}
    return Pairs(
        np.arange(B).reshape(B, 1, 1, 1),
        np.arange(N).reshape(N, 1, 1),
        (first + np.arange(T, dtype="int32")).reshape(T, 1),
        np.arange(S, dtype="int32"),
        {name: each.reshape(shapes[name]) for name, each in told.items()},
    )


def _blocks(first, told, rows, columns):
    def ranges(numbers, size):
        parts = [numbers[..., i : i + size] for i in range(0, numbers.shape[-1], size)]
        return Range(*(np.stack([end(part, -1) for part in parts], -1).astype("int32") for end in (np.min, np.max)))

    query, key = ranges(first + np.arange(T), rows), ranges(np.arange(S), columns)
    query_ids, key_ids = ranges(told["query_segment_ids"], rows), ranges(told["segment_ids"], columns)
    prefix = told["prefix_length"][:, None, None]
    inputs = {
        "query_segment_ids": Range(*(end[:, :, None] for end in query_ids)),
        "segment_ids": Range(*(end[:, None] for end in key_ids)),
        "prefix_length": Range(prefix, prefix),
    }
    return Blocks(Range(*(end[:, None] for end in query)), key, inputs)


@settings(max_examples=30, deadline=None, database=None, derandomize=True)
@given(
    rule=COMBINED,
    first=st.integers(-4, 6),
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_a_rule_sees_what_its_definition_says_and_skips_nothing_of_it(rule, first, rows, columns, seed):
    rng = np.random.default_rng(seed)
    told = {
        "query_segment_ids": np.sort(rng.integers(0, 3, (B, T))).astype("int32"),
        "segment_ids": np.sort(rng.integers(0, 3, (B, S))).astype("int32"),
        "prefix_length": rng.integers(0, S, B).astype("int32"),
    }
    expected = np.zeros((B, N, T, S), bool)
    for b, n, t, s in np.ndindex(expected.shape):
        pair = {"batch": b, "head": n, "query": first + t, "key": s, "prefix_length": told["prefix_length"][b]}
        pair |= {"query_segment_ids": told["query_segment_ids"][b, t], "segment_ids": told["segment_ids"][b, s]}
        expected[b, n, t, s] = references.rule_sees(rule, pair)
    seen = ops.convert_to_numpy(rule.sees(_pairs(first, told)))
    np.testing.assert_array_equal(np.broadcast_to(seen, expected.shape), expected)
    blocks, counts = _blocks(first, told, rows, columns), (B, -(-T // rows), -(-S // columns))
    some, everything = (
        np.broadcast_to(ops.convert_to_numpy(ask(blocks)), counts) for ask in (rule.may_see, rule.sees_all)
    )
    for b, i, j in np.ndindex(counts):
        part = expected[b, :, i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
        assert some[b, i, j] or not part.any()
        assert part.all() or not everything[b, i, j]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (layers.Causal() & layers.SlidingWindow(1), ["1000", "1100", "0110", "0011"]),
        (layers.SlidingWindow(0) | layers.GlobalTokens([0]), ["1111", "1100", "1010", "1001"]),
        (layers.Causal() & (layers.SlidingWindow(1, 0) | layers.GlobalTokens([0])), ["1000", "1100", "1110", "1011"]),
        (layers.Dilated(1, 2), ["1010", "0101", "1010", "0101"]),
        (layers.BlockSparse(2, [[1, 0], [1, 1]]), ["1100", "1100", "1111", "1111"]),
        (layers.Causal() & (layers.LocalBlocks(2) | layers.SummaryTokens(2, 1)), ["1000", "1100", "0110", "0111"]),
    ],
    ids=repr,
)
def test_by_hand(rule, expected):
    inputs = random_array((1, 4, 8), 1)
    _, weights = layers.SelfAttention(5, visibility=rule)(inputs, inputs, return_attention_scores=True)
    assert ["".join(str(int(weight > 0)) for weight in row) for row in to_numpy(weights)[0]] == expected


@pytest.mark.parametrize("room", [None, S + 2])
def test_a_cache_chooses_the_blocks_of_the_whole_sequence(room):
    layer = layers.GroupedQueryAttention(4, 2, 5, visibility=layers.TopBlocks(2, 2), positions=layers.RotaryPositions())
    expected, weights = layer(INPUTS, INPUTS, use_causal_mask=True, return_attention_scores=True)
    blocks = np.pad(to_numpy(weights) > 0, [(0, 0)] * 3 + [(0, 1)]).reshape(B, 4, S, -1, 2).any(axis=-1)
    np.testing.assert_array_equal(
        blocks.sum(axis=-1), np.minimum(np.arange(S) // 2 + 1, 2)[None, None].repeat(B, 0).repeat(4, 1)
    )
    assert blocks[:, :, np.arange(S), np.arange(S) // 2].all()  # its own is among them
    cache, found = layer.create_cache(B, room), []
    for part in (slice(0, 4), *(slice(place, place + 1) for place in range(4, S))):
        output, cache = layer(INPUTS[:, part], INPUTS[:, part], cache=cache)
        found.append(to_numpy(output))
    np.testing.assert_allclose(np.concatenate(found, axis=1), to_numpy(expected), atol=1e-5)


def test_blocks_are_chosen_in_a_graph_of_any_length():
    layer = layers.SelfAttention(5, visibility=layers.Causal() & layers.TopBlocks(2, 4))
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, layer(inputs))
    for length in (3, S):  # fewer and more blocks than are chosen
        given = INPUTS[:, :length]
        np.testing.assert_allclose(model.predict(given, verbose=0), to_numpy(layer(given)), atol=1e-5)


def test_layers_with_rules_are_saved(tmp_path):
    rule = layers.Causal() & (layers.SlidingWindow(2, 0) | layers.GlobalTokens([0]) | layers.BlockSparse(3, [[1, 0]]))
    inputs, ids = keras.Input((S, 8)), keras.Input((S,), dtype="int32")
    layer = layers.MultiHeadAttention(3, 5, visibility=rule & layers.Segments(), normalization="sink")
    model = keras.Model([inputs, ids], layer(inputs, inputs, segment_ids=ids))
    model.save(tmp_path / "model.keras")
    loaded, given = keras.saving.load_model(tmp_path / "model.keras"), [INPUTS, np.arange(B * S).reshape(B, S) // 3]
    assert loaded.layers[-1].visibility == layer.visibility
    np.testing.assert_array_equal(to_numpy(loaded(given)), to_numpy(model(given)))
    clone = keras.models.clone_model(model)
    assert clone.layers[-1].visibility == layer.visibility


def test_packed_texts_are_as_texts_by_themselves():
    layer = layers.MultiHeadAttention(3, 5, positions=layers.RotaryPositions(), visibility=layers.Segments())
    ids = np.array([[1] * 4 + [2] * 7] * B)
    packed = to_numpy(layer(INPUTS, INPUTS, segment_ids=ids, use_causal_mask=True))
    for part in (slice(0, 4), slice(4, 11)):
        alone = to_numpy(layer(INPUTS[:, part], INPUTS[:, part], segment_ids=ids[:, part], use_causal_mask=True))
        np.testing.assert_allclose(packed[:, part], alone, atol=1e-5)


@pytest.mark.parametrize("room", [None, S + 2])
def test_a_prefix_enters_a_cache_in_one_call(room):
    layer = layers.GroupedQueryAttention(4, 2, 5, visibility=layers.PrefixLM())
    prefix = {"prefix_length": np.array([4, 2])}
    expected = to_numpy(layer(INPUTS, INPUTS, **prefix))
    cache, found = layer.create_cache(B, room), []
    for part in (slice(0, 4), *(slice(place, place + 1) for place in range(4, S))):
        output, cache = layer(INPUTS[:, part], INPUTS[:, part], cache=cache, **prefix)
        found.append(to_numpy(output))
    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, atol=1e-5)


@pytest.mark.parametrize("room", [None, S + 2])
def test_only_the_prefix_of_the_future_is_seen_under_a_causal_mask(room):
    rule = (layers.PrefixLM() | layers.GlobalTokens([0, 5])) & layers.MaskMod(all_pairs) | layers.SlidingWindow(2)
    layer = layers.MultiHeadAttention(3, 5, visibility=rule)
    prefix = {"prefix_length": np.array([4, 2])}
    expected, weights = layer(INPUTS, INPUTS, use_causal_mask=True, return_attention_scores=True, **prefix)
    places = np.arange(S)
    future = (places > places[:, None]) & (places >= prefix["prefix_length"][:, None, None])
    assert not np.any(to_numpy(weights)[np.broadcast_to(future[:, None], weights.shape)])
    assert layers.SelfAttention(5, visibility=layers.PrefixLM() | layers.SlidingWindow(2)).visibility.replaces_causal
    _, free = layer(INPUTS, INPUTS, return_attention_scores=True, **prefix)
    assert np.any(to_numpy(free)[0, 0, 5, 6:])
    cache, found = layer.create_cache(B, room), []
    for part in (slice(0, 4), *(slice(place, place + 1) for place in range(4, S))):
        output, cache = layer(INPUTS[:, part], INPUTS[:, part], cache=cache, **prefix)
        found.append(to_numpy(output))
    np.testing.assert_allclose(np.concatenate(found, axis=1), to_numpy(expected), atol=1e-5)


def _call(**options):
    layer = layers.SelfAttention(5, visibility=options.pop("rule", layers.Segments()))
    return layer(INPUTS, INPUTS, **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _call(), r"The call must tell `segment_ids`, .* needs: Segments\(\)"),
        (lambda: _call(rule=layers.PrefixLM()), "must tell `prefix_length`"),
        (lambda: _call(rule=layers.Causal(), segment_ids=np.ones((B, S), int)), "`segment_ids` is for a layer whose"),
        (lambda: _call(segment_ids=np.ones((B, S))), r"`segment_ids` must be integers \[B, S\]. .*dtype=float"),
        (lambda: _call(segment_ids=np.ones((B, S + 1), int)), r"must be integers \[B, S\]. Received: shape=\(2, 12\)"),
        (lambda: _call(segment_ids=np.ones((B, S, 1), int)), r"Received: shape=\(2, 11, 1\)"),
        (lambda: _call(segment_ids=np.ones((3, S), int)), "`segment_ids` must have the batch size of `query`"),
        (lambda: layers.SelfAttention(5, visibility="causal"), "`visibility` must be a VisibilityRule"),
        (lambda: layers.Causal() & 3, "`visibility` must be a VisibilityRule"),
        (lambda: layers.SlidingWindow(-1), "`left` must be an integer, 0 or more. Received: left=-1"),
        (lambda: layers.Dilated(1, 0), "`dilation` must be an integer, 1 or more"),
        (lambda: layers.BlockSparse(2, [[1], []]), "`pattern` must be rows of booleans, all of one length"),
        (lambda: layers.SummaryTokens(2, 3), "`count` must be at most `block_size`, 2. Received: count=3"),
        (lambda: layers.TopBlocks(2, 0), "`count` must be an integer, 1 or more"),
        (lambda: layers.TopBlocks(2, 1) | layers.Causal(), "A rule that chooses combines by `&` alone"),
        (lambda: layers.TopBlocks(2, 1) & layers.TopBlocks(3, 1), "One rule can choose among what the others let see"),
        (
            lambda: layers.SlidingWindowAttention(2, 4, 1, visibility=layers.TopBlocks(2, 1)),
            "SlidingWindowAttention takes no rule that chooses by scores",
        ),
        (lambda: layers.MaskMod(3), "`function` must take batch, head, query and key"),
        (lambda: layers.LinearAttention(3, 5, visibility=layers.Causal()), "LinearAttention sums over the keys"),
        (lambda: layers.MultiScaleRetention(2, 4, normalization="sink"), "MultiScaleRetention sums over the keys"),
        (
            lambda: layers.SelfAttention(5, normalization="entmax"),
            "Unknown normalization 'entmax'. Did you mean entmax15",
        ),
        (lambda: layers.SelfAttention(5, normalization=3), "must be a Normalization or the name of one"),
        (lambda: layers.EntmaxNormalization(2), "`alpha` must be between 1 and 2"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
