"""Rules of visibility: what they combine to, which blocks they skip, what they need, and how they are saved."""

import keras
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from keras import ops
from support.every import assert_refused, every
from support.layers import references
from support.layers.contract import compiled, random_array, to_numpy
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


SIMPLE = [
    layers.Causal(),
    layers.SlidingWindow(2, 1),
    layers.Dilated(2, 2),
    layers.LocalBlocks(3),
    layers.BlockSparse(2, [[1, 0, 1], [0, 1, 1]]),
    layers.GlobalTokens([0, 3]),
    layers.SummaryTokens(4, 2),
    layers.Segments(),
    layers.PrefixLM(),
]


def _with_simple_rules(test):
    for number, rule in enumerate(SIMPLE):
        for first, columns in ((0, 2), (0, 3), (4, 2), (4, 3)):
            test = example(rule=rule, first=first, rows=2, columns=columns, seed=number)(test)
    return test


@_with_simple_rules
@settings(max_examples=15, deadline=None, database=None, derandomize=True)
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
    seen = ops.convert_to_numpy(rule.allows(_pairs(first, told)))
    np.testing.assert_array_equal(np.broadcast_to(seen, expected.shape), expected)
    blocks, counts = _blocks(first, told, rows, columns), (B, -(-T // rows), -(-S // columns))
    some, everything = (
        np.broadcast_to(ops.convert_to_numpy(ask(blocks)), counts) for ask in (rule.may_allow, rule.allows_all)
    )
    for b, i, j in np.ndindex(counts):
        part = expected[b, :, i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
        assert some[b, i, j] or not part.any()
        assert part.all() or not everything[b, i, j]


BY_HAND = [
    (layers.SlidingWindow(1, 0), ["1000", "1100", "0110", "0011"]),
    (layers.Causal() & layers.SlidingWindow(1), ["1000", "1100", "0110", "0011"]),
    (layers.SlidingWindow(0) | layers.GlobalTokens([0]), ["1111", "1100", "1010", "1001"]),
    (layers.Causal() & (layers.SlidingWindow(1, 0) | layers.GlobalTokens([0])), ["1000", "1100", "1110", "1011"]),
    (layers.Dilated(1, 2), ["1010", "0101", "1010", "0101"]),
    (layers.BlockSparse(2, [[1, 0], [1, 1]]), ["1100", "1100", "1111", "1111"]),
    (layers.Causal() & (layers.LocalBlocks(2) | layers.SummaryTokens(2, 1)), ["1000", "1100", "0110", "0111"]),
]


def test_by_hand():
    inputs = random_array((1, 4, 8), 1)
    with every() as failures:
        for rule, expected in BY_HAND:
            with failures.of(rule):
                layer = layers.SelfAttention(5, visibility=rule)
                _, weights = layer(inputs, inputs, return_attention_scores=True)
                rows = to_numpy(weights)[0] > 0
                assert ["".join(map(str, row.astype(int))) for row in rows] == expected


def _in_a_cache(layer, room, **told):
    """Returns the joined outputs of calls with a cache: four positions at once, and then step by step."""
    cache, found = layer.create_cache(B, room), []
    for part in (slice(0, 4), *(slice(place, place + 1) for place in range(4, S))):
        given = dict(told)
        if "segment_ids" in given:  # over the room of the cache, or over all that is in it
            given["segment_ids"] = np.pad(given["segment_ids"], ((0, 0), (0, 2)))[:, : room or part.stop]
        output, cache = layer(INPUTS[:, part], INPUTS[:, part], cache=cache, **given)
        found.append(to_numpy(output))
    return np.concatenate(found, axis=1)


PREFIX_OR_WINDOW = layers.PrefixLM() | layers.SlidingWindow(2)
_SEEN_AHEAD = layers.PrefixLM() | layers.GlobalTokens([0, 5])
PREFIX_IN_PARTS = _SEEN_AHEAD & layers.MaskMod(all_pairs) | layers.SlidingWindow(2)
IN_CACHES = {
    "chosen blocks": (layers.TopBlocks(2, 2), {}),
    "prefix": (layers.PrefixLM(), {"prefix_length": np.array([4, 2])}),
    "combined prefix": (PREFIX_IN_PARTS, {"prefix_length": np.array([4, 2])}),
    "segments": (layers.Segments(), {"segment_ids": np.array([[1] * 6 + [2] * 5, [3] * 3 + [4] * 5 + [5] * 3])}),
}


@pytest.mark.parametrize("name", IN_CACHES)
def test_a_cache_gives_what_the_whole_sequence_gives(name):
    rule, told = IN_CACHES[name]
    layer = layers.GroupedQueryAttention(4, 2, 5, visibility=rule, positions=layers.RotaryPositions())
    expected, weights = layer(INPUTS, INPUTS, use_causal_mask=True, return_attention_scores=True, **told)
    for room in (S + 2, None) if name == "segments" else (S + 2,):
        np.testing.assert_allclose(_in_a_cache(layer, room, **told), to_numpy(expected), atol=1e-5)
    seen, places = to_numpy(weights) > 0, np.arange(S)
    if name == "chosen blocks":
        blocks = np.pad(seen, [(0, 0)] * 3 + [(0, 1)]).reshape(B, 4, S, -1, 2).any(axis=-1)
        np.testing.assert_array_equal(
            blocks.sum(axis=-1), np.minimum(places // 2 + 1, 2)[None, None].repeat(B, 0).repeat(4, 1)
        )
        assert blocks[:, :, places, places // 2].all()  # its own is among them
    elif name == "combined prefix":  # only the prefix of the future is seen under a causal mask
        future = (places > places[:, None]) & (places >= told["prefix_length"][:, None, None])
        assert not np.any(seen[np.broadcast_to(future[:, None], seen.shape)])
        _, free = layer(INPUTS, INPUTS, return_attention_scores=True, **told)
        assert np.any(to_numpy(free)[0, 0, 5, 6:])
        assert layers.SelfAttention(
            5, visibility=layers.PrefixLM() | layers.SlidingWindow(2)
        ).visibility.replaces_causal


def test_what_of_a_prefix_is_not_in_the_cache_yet_is_not_seen():
    layer = layers.GroupedQueryAttention(4, 2, 5, visibility=layers.PrefixLM())
    told, first = {"prefix_length": np.array([6, 2])}, INPUTS[:, :4]
    expected = to_numpy(layer(first, first, return_attention_scores=True, **told)[1])
    _, weights, _ = layer(first, first, cache=layer.create_cache(B, S), return_attention_scores=True, **told)
    np.testing.assert_allclose(to_numpy(weights), np.pad(expected, [(0, 0)] * 3 + [(0, S - 4)]), atol=1e-6)


def test_blocks_are_chosen_in_a_graph_of_any_length():
    layer = layers.SelfAttention(5, visibility=layers.Causal() & layers.TopBlocks(2, 4))
    layer.build((None, None, 8))
    run = compiled(layer, False)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        run = tf.function(layer, input_signature=[tf.TensorSpec((None, None, 8))], autograph=False)
    for length in (3, S):  # fewer and more blocks than are chosen
        given = ops.convert_to_tensor(INPUTS[:, :length])
        np.testing.assert_allclose(to_numpy(run(given)), to_numpy(layer(given)), atol=1e-5)


@keras.saving.register_keras_serializable(package="attention_zoo_tests")
class EarlyKeys(layers.VisibilityRule):
    """A rule of one's own with an argument and without `get_config`; its method has the name of earlier versions."""

    def __init__(self, count):
        self.count = count

    def sees(self, pairs):
        return pairs.key < self.count


class LaterKeys(layers.Causal):
    """A rule of one's own that calls and overrides methods by their names of earlier versions."""

    def sees(self, pairs):
        return ~super().sees(pairs)

    def may_see(self, blocks):
        return ops.ones_like(super().may_see(blocks))


class OddKeys:
    """A mixin with the name of earlier versions."""

    def sees(self, pairs):
        return ops.equal(pairs.key % 2, 1)


class OddKeysOnly(OddKeys, layers.VisibilityRule):
    """A rule whose method is that of a mixin."""


def test_methods_keep_the_names_of_earlier_versions():
    np.testing.assert_array_equal(OddKeysOnly().allows(_pairs(0, {})), OddKeys().sees(_pairs(0, {})))
    rule, pairs = LaterKeys() | EarlyKeys(1), _pairs(0, {})
    expected = (pairs.key > pairs.query) | (pairs.key < 1)
    np.testing.assert_array_equal(ops.convert_to_numpy(rule.allows(pairs)), expected)
    np.testing.assert_array_equal(ops.convert_to_numpy(rule.sees(pairs)), expected)
    assert LaterKeys().skips and not EarlyKeys(1).skips


class EvenDistances(layers.SlidingWindow):
    def allows(self, pairs):
        return ops.logical_and(super().allows(pairs), ops.equal((pairs.query - pairs.key) % 2, 0))


class Wider(layers.SlidingWindow):
    def allows(self, pairs):
        return ops.abs(pairs.query - pairs.key) <= 2 * self.left


class Sparser(layers.Dilated):
    def allows(self, pairs):
        return ops.logical_and(super().allows(pairs), pairs.key > 1)


class Later(layers.GlobalTokens):
    def allows(self, pairs):
        return pairs.key <= max(self.positions) + 2


def test_a_subclass_that_allows_other_pairs_inherits_no_bounds():
    with every() as failures:
        for rule in (EvenDistances(2, 2), Wider(1), Sparser(2, 2), Later([1])):
            with failures.of(rule):
                allowed = np.broadcast_to(ops.convert_to_numpy(rule.allows(_square_pairs())), (1, 1, S, S))[0, 0]
                _, weights = layers.DotAttention(visibility=rule, implementation="dense")(
                    INPUTS, INPUTS, return_attention_scores=True
                )
                np.testing.assert_array_equal(to_numpy(weights)[0] > 0, allowed)
                bounds = (rule.reach, rule.span, rule.kept_first, rule.is_relative, rule.skips)
                assert bounds == (None, None, 0, False, False)
    long = random_array((1, 300, 8), 2)
    for rule in (EvenDistances(290), Wider(100)):
        outputs = [
            to_numpy(layers.DotAttention(visibility=rule, implementation=name)(long, long))
            for name in ("dense", "blockwise")
        ]
        np.testing.assert_allclose(*outputs, atol=2e-6)
    bounded = type("Bounded", (Wider,), {"reach": 6, "may_allow": layers.SlidingWindow.may_allow})(3)
    assert bounded.reach == 6 and bounded.skips


def _square_pairs():
    places = np.arange(S, dtype="int32")
    return Pairs(np.zeros((1, 1, 1, 1), "int32"), np.zeros((1, 1, 1), "int32"), places[:, None], places)


def test_layers_with_rules_are_saved(tmp_path):
    rule = layers.SlidingWindow(2, 0) | layers.GlobalTokens([0]) | layers.BlockSparse(3, [[1, 0]]) | EarlyKeys(2)
    assert EarlyKeys(2) == EarlyKeys(2) != EarlyKeys(3)
    rule = layers.Causal() & rule
    inputs, ids = keras.Input((S, 8)), keras.Input((S,), dtype="int32")
    layer = layers.MultiHeadAttention(3, 5, visibility=rule & layers.Segments(), normalization="sink")
    model = keras.Model([inputs, ids], layer(inputs, inputs, segment_ids=ids))
    model.save(tmp_path / "model.keras")
    loaded, given = keras.saving.load_model(tmp_path / "model.keras"), [INPUTS, np.arange(B * S).reshape(B, S) // 3]
    assert loaded.layers[-1].visibility == layer.visibility
    np.testing.assert_array_equal(to_numpy(loaded(given)), to_numpy(model(given)))


def test_packed_texts_are_as_texts_by_themselves():
    layer = layers.MultiHeadAttention(3, 5, positions=layers.RotaryPositions(), visibility=layers.Segments())
    ids = np.array([[1] * 4 + [2] * 7] * B)
    packed = to_numpy(layer(INPUTS, INPUTS, segment_ids=ids, use_causal_mask=True))
    for part in (slice(0, 4), slice(4, 11)):
        alone = to_numpy(layer(INPUTS[:, part], INPUTS[:, part], segment_ids=ids[:, part], use_causal_mask=True))
        np.testing.assert_allclose(packed[:, part], alone, atol=1e-5)


def _call(rule=None, **options):
    layer = layers.SelfAttention(5, visibility=layers.Segments() if rule is None else rule)
    return layer(INPUTS, INPUTS, **options)


ERRORS = [
    (lambda: _call(), "segment_ids.*Segments"),
    (lambda: _call(layers.PrefixLM()), "prefix_length.*PrefixLM"),
    (lambda: _call(layers.Causal(), segment_ids=np.ones((B, S), int)), "segment_ids.*Causal"),
    (lambda: _call(segment_ids=np.ones((B, S))), "segment_ids.*dtype=float"),
    (lambda: _call(segment_ids=np.ones((B, S + 1), int)), r"segment_ids.*\(2, 12\)"),
    (lambda: _call(segment_ids=np.ones((B, S, 1), int)), r"segment_ids.*\(2, 11, 1\)"),
    (lambda: _call(segment_ids=np.ones((3, S), int)), "segment_ids.*query.*3"),
    (lambda: layers.SelfAttention(5, visibility="causal"), "visibility.*causal"),
    (lambda: layers.Causal() & 3, "visibility.*3"),
    (lambda: layers.SlidingWindow(-1), "left.*-1"),
    (lambda: layers.Dilated(1, 0), "dilation.*0"),
    (lambda: layers.BlockSparse(2, [[1], []]), "pattern.*\\[\\[1\\], \\[\\]\\]"),
    (lambda: layers.SummaryTokens(2, 3), "count.*2.*3"),
    (lambda: layers.TopBlocks(2, 0), "count.*0"),
    (lambda: layers.TopBlocks(2, 1) | layers.Causal(), r"TopBlocks.*\| Causal"),
    (lambda: layers.TopBlocks(2, 1) & layers.TopBlocks(3, 1), "TopBlocks.*& TopBlocks"),
    (
        lambda: layers.SlidingWindowAttention(2, 4, 1, visibility=layers.TopBlocks(2, 1)),
        "SlidingWindowAttention.*visibility=TopBlocks",
    ),
    (lambda: layers.MaskMod(3), "function.*3"),
    (lambda: layers.LinearAttention(3, 5, visibility=layers.Causal()), "LinearAttention.*visibility=Causal"),
    (lambda: layers.MultiScaleRetention(2, 4, normalization="sink"), "MultiScaleRetention.*normalization=<Sink"),
    (lambda: layers.SelfAttention(5, normalization="entmax"), "normalization.*entmax.*entmax15"),
    (lambda: layers.SelfAttention(5, normalization=3), "Normalization.*3"),
    (lambda: layers.EntmaxNormalization(2), "alpha.*2"),
]


def test_errors():
    assert_refused(ERRORS)
