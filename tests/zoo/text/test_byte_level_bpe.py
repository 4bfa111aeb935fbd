"""Byte-level BPE: ids as GPT-2's reference has them, in both halves, and back to text."""

import functools
import json
import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from support.every import every

from export.graph.tokenizers import tokenizer_graph
from export.graph.tokenizers.tables import PagedTable, PairTable
from export.graph.tokenizers.word_starts import WordStarts
from zoo.errors import InputError
from zoo.text import ByteLevelBPETokenizer, load_tokenizer
from zoo.text.byte_level_bpe import AddedToken, byte_alphabet
from zoo.text.word_splits import LETTER, NUMBER, OTHER, SPACE, WORD_RULES, character_classes, word_pattern

FOLDER = Path(__file__).parents[2] / "fixtures" / "importing" / "gpt2"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
TRICKY = [
    "'s",
    "'S",
    "''s",
    "'ll",
    "s",
    " ",
    "  ",
    "\t",
    "\n",
    "é",
    "é",
    "漢",
    "0",
    "½",
    "!",
    "\0",
    "\u200d",
    "😀",
    "\u3000",
]


def make():
    """Returns the tokenizer of the fixture, whose end is the first piece of the file."""
    pieces = list(json.loads((FOLDER / "vocab.json").read_text(encoding="utf-8")))
    merges = [line.split(" ") for line in (FOLDER / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]]
    ids = [-1, 0, 0, *range(1, len(pieces))]
    return ByteLevelBPETokenizer(["<pad>", "<s>", "</s>", *pieces[1:]], merges, (), ids)


@functools.cache
def halves():
    tokenizer = make()
    module = tokenizer_graph(tokenizer)
    module.read = tf.function(module.encode, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    module.write = tf.function(module.decode, input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)
    return tokenizer, module


@pytest.fixture
def tokenizer():
    return halves()[0]


@pytest.fixture
def graph():
    return halves()[1]


def read(graph, texts):
    return graph.read(tf.constant([text.encode() for text in texts], tf.string)).to_list()


def test_ids_are_those_of_the_reference(tokenizer, graph):
    rows = tokenizer.encode(EXPECTED["texts"])
    assert [[tokenizer.original_ids[i] for i in row] for row in rows] == EXPECTED["token_ids"]
    assert read(graph, EXPECTED["texts"]) == rows
    assert tokenizer.decode(rows) == EXPECTED["texts"]


ANY_TEXTS = st.lists(
    st.lists(st.sampled_from(TRICKY) | st.characters(exclude_categories=["Cs"])).map("".join), max_size=5
)


def check_that_halves_agree(texts):
    tokenizer, graph = halves()
    rows = tokenizer.encode(texts)
    assert read(graph, texts) == rows
    assert tokenizer.decode(rows) == texts
    assert [text.decode() for text in graph.write(tf.ragged.constant(rows, tf.int32, 1).to_tensor()).numpy()] == texts


def test_words_begin_in_the_graph_where_they_begin_in_python():
    chance = random.Random(4)
    parts = [*TRICKY, "'ſ", "'lL", "'Re", "s", "12", "12345", "?!", "!\n", "\r\n", "\n \n", "İ", "'", "\u2028"]
    texts = ["".join(chance.choices(parts, k=chance.randrange(10))) for _ in range(5000)]
    characters = tf.strings.unicode_decode(texts, "UTF-8")
    rows = tf.cast(characters.value_rowids(), tf.int32) + 1
    for rule in WORD_RULES:
        starts = WordStarts(rule)(characters.flat_values, rows)
        for text, found in zip(texts, characters.with_flat_values(starts).to_list(), strict=True):
            words = word_pattern(rule).findall(text)
            assert found == [not place for word in words for place in range(len(word))], (rule, text)


@pytest.mark.parametrize(("compose", "whole_words"), [(False, True), (True, False)])
def test_added_tokens_and_whole_words(compose, whole_words):
    pieces = ["<pad>", "<s>", "</s>", *byte_alphabet(), "ab", "abc", "xyz", "", "", "", ""]
    start, longer, accent, end = range(262, 266)
    places = {"<b>": False, "<b><b>": False, "éx" if compose else "e\u0301x": True, "b>": True}
    added = [AddedToken(text, index, is_composed) for index, (text, is_composed) in enumerate(places.items(), 262)]
    merges = [("a", "b"), ("ab", "c")]
    tokenizer = ByteLevelBPETokenizer(pieces, merges, (), None, added, compose, "gpt4", whole_words)
    texts = ["<b>", "a<b><b><b>ab>", "e\u0301x éx", "<b>\u0338>", "xyz abc xyzab", "b", "", "éx<b>éx\u0301"]
    rows = tokenizer.encode(texts)
    (a,) = tokenizer.encode(["a"])[0]
    assert rows[:2] == [[start], [a, longer, start, a, end]]
    assert [row.count(accent) for row in rows] == ([0, 0, 2, 0, 0, 0, 0, 2] if compose else [0, 0, 1, 0, 0, 0, 0, 0])
    assert (261 in rows[4]) == whole_words and tokenizer.encode(["abc"]) == [[260]]
    graph = tokenizer_graph(tokenizer)
    assert graph.encode(tf.constant(texts)).to_list() == rows
    assert graph.encode(tf.zeros([0], tf.string)).to_list() == [] and graph.encode(tf.constant([""])).to_list() == [[]]
    loaded = ByteLevelBPETokenizer.from_saved(json.loads(tokenizer._files()[".json"]), bytes)
    assert loaded.encode(texts) == rows and loaded.decode(rows) == tokenizer.decode(rows)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(ANY_TEXTS)
def test_halves_agree_and_lead_back_to_the_text(texts):
    check_that_halves_agree(texts)


@pytest.mark.nightly
@settings(max_examples=300, deadline=None)
@given(ANY_TEXTS)
def test_halves_agree_on_many_texts(texts):
    check_that_halves_agree(texts)


def test_halves_decode_broken_characters_alike(tokenizer, graph):
    chance = random.Random(3)
    bytes_of = [0xE2, 0x80, 0xF0, 0x9F, 0xC3, 0xA9, 0xFF, 0xC0, 0xED, 0xA0, 0x41, 0xF4, 0x90]
    rows = [[tokenizer.byte_ids[chance.choice(bytes_of)] for _ in range(7)] for _ in range(300)]
    rows += [[chance.randrange(tokenizer.vocab_size + 9) for _ in range(7)] for _ in range(100)]
    assert [text.decode() for text in graph.write(tf.constant(rows)).numpy()] == tokenizer.decode(rows)
    pieces = graph.pieces(tf.constant(rows)).numpy().tolist()
    assert [[piece.decode() for piece in row] for row in pieces] == [tokenizer.pieces(row) for row in rows]


def test_long_words_and_empty_batches(tokenizer, graph):
    chance = random.Random(5)
    texts = ["the" * 1000, "".join(chance.choice("anhersitd漢") for _ in range(2000)), " " * 501 + "x"]
    assert read(graph, texts) == tokenizer.encode(texts)
    assert read(graph, []) == tokenizer.encode([]) == []
    assert read(graph, ["", ""]) == [[], []]
    assert read(graph, []) == []
    assert graph.write(tf.zeros([0, 3], tf.int32)).numpy().tolist() == []
    assert graph.read(tf.constant([b"a\xff\xfeb"])).to_list() == tokenizer.encode(["a\ufffd\ufffdb"])


@pytest.mark.parametrize(
    ("merges", "expected"),
    [
        # Of three, the first two are merged, and then the pair that was learned next.
        (["a a", "a b", "aa b"], {"aaab": ["aa", "ab"], "aab": ["aab"], "ab a": ["ab", "▁", "a"], "aaa": ["aa", "a"]}),
        (["b c", "a b"], {"abc": ["a", "bc"], "ab": ["ab"]}),
    ],
)
def test_merges_by_hand(merges, expected):
    pairs = [merge.split() for merge in merges]
    pieces = ["<pad>", "<s>", "</s>", *byte_alphabet(), *map("".join, pairs)]
    tokenizer = ByteLevelBPETokenizer(pieces, pairs)
    rows = tokenizer.encode(list(expected))
    assert [tokenizer.pieces(row) for row in rows] == list(expected.values())
    assert tokenizer_graph(tokenizer).encode(tf.constant(list(expected))).to_list() == rows


def test_pieces_can_be_printed(tokenizer):
    assert tokenizer.pieces([0, 1, 2, *tokenizer.encode([" the é"])[0]]) == [
        "", "<s>", "</s>", "▁the", "▁", "<0xC3>", "<0xA9>",
    ]  # fmt: skip


def test_saving_and_loading(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "text")
    again = load_tokenizer(tmp_path / "text")
    assert again.encode(EXPECTED["texts"]) == tokenizer.encode(EXPECTED["texts"])
    assert again.original_ids == tokenizer.original_ids
    assert again.piece_table() == tokenizer.piece_table()


def test_what_is_no_vocabulary_is_refused():
    alphabet = byte_alphabet()
    with every() as failures:
        for pieces, merges, ids, message in (
            ([*alphabet], [], None, "'Ā'.*byte"),
            (["", "", "", *alphabet], [("a", "b")], None, "'ab'.*merge"),
            (["", "", "", *alphabet, "a"], [], None, "'a' twice"),
            (["", "", "", *alphabet, "a b"], [], None, "' '"),
            (["", "", "", *alphabet], [], [1], "259 pieces.*: 1"),
        ):
            with failures.of(message), pytest.raises(InputError, match=message):
                ByteLevelBPETokenizer(pieces, merges, (), ids)


def test_classes_of_characters():
    wanted = {"a": LETTER, "漢": LETTER, "\U00011f04": LETTER, "7": NUMBER, "½": NUMBER, "Ⅷ": NUMBER, "\u0301": OTHER}
    wanted |= {"\x1c": OTHER, "\u200d": OTHER, " ": SPACE, "\x85": SPACE, "\u3000": SPACE, "\U0001e4f0": NUMBER}
    assert {c: int(character_classes()[ord(c)]) for c in wanted} == wanted
    assert word_pattern().findall("it's  12½ !? \n") == ["it", "'s", " ", " 12½", " !?", " \n"]


def test_tables_find_what_is_there_and_nothing_else():
    chance = np.random.default_rng(2)
    pairs = np.unique(chance.integers(0, 997, (5000, 2)), axis=0)
    table = PairTable(pairs, 1009)
    others = chance.integers(0, 1009, (5000, 2)).astype("int32")
    numbers = {tuple(pair): number for number, pair in enumerate(pairs.tolist())}
    assert table(*tf.constant(pairs.T, tf.int32)).numpy().tolist() == list(range(len(pairs)))
    assert table(*others.T).numpy().tolist() == [numbers.get(tuple(pair), -1) for pair in others.tolist()]
    assert PairTable(np.zeros((0, 2), "int64"), 7)(tf.constant([0, 3]), tf.constant([0, 5])).numpy().tolist() == [
        -1,
        -1,
    ]
    values = chance.integers(0, 3, 1024).astype("uint8")
    assert PagedTable(values)(tf.range(1024)).numpy().tolist() == values.tolist()
