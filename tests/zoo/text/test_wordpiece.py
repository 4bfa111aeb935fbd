"""WordPiece: both halves agree on any text, and read as BERT's tables say."""

import functools

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from export.graph.tokenizers import tokenizer_graph
from zoo.errors import InputError
from zoo.text import WordPieceTokenizer, load_tokenizer
from zoo.text.bert_characters import PUNCTUATION, SPACE, Reading, character_classes
from zoo.text.reordered_subwords import UNUSED
from zoo.vocabulary import SPECIAL_PIECES, UNKNOWN

WORDS = (
    "un",
    "##able",
    "##a",
    "able",
    "##b",
    "a",
    "e",
    "i",
    "##i",
    "i\u0307",
    ".",
    "'",
    "漢",
    "##漢",
    "x",
    "##x",
    "ss",
    "½",
)
TRICKY = [
    *"\0\n\r \x85\xa0\u200d\u2028\u3000½ⅧſßİÅé漢豈가אב😀\u0301\u0323_-'.[]#aAbBeix",
    "unable",
    "##",
    "x" * 100,
    "x" * 101,
]


def make(*, words=WORDS, **reading):
    pieces = [*SPECIAL_PIECES, *words, UNUSED, UNUSED]
    return WordPieceTokenizer(pieces, range(len(pieces)), Reading(**reading))


@functools.cache
def halves(lowercase):
    tokenizer = make(lowercase=lowercase, strip_accents=lowercase)
    module = tokenizer_graph(tokenizer)
    module.read = tf.function(module.encode, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    return tokenizer, module


def read(graph, texts):
    return graph.read(tf.constant([text.encode() for text in texts], tf.string)).to_list()


def pieces(tokenizer, text):
    return tokenizer.pieces(tokenizer.encode([text])[0])


def test_the_longest_piece_is_taken_again_and_again():
    tokenizer, graph = halves(True)
    expected = {
        "unable": ["un", "##able"],
        "UNABLE": ["un", "##able"],
        "unablé": ["un", "##able"],
        "áe": ["<unk>"],
        "á e\u0301\u0323.": ["a", "e", "."],
        "x漢x": ["x", "漢", "x"],
        "a\0\u200d\ufffdb\x85 a\u3000a": ["a", "##b", "a", "a"],
        "x" * 100: ["x", *["##x"] * 99],
        "x" * 101: ["<unk>"],
        "": [],
        "[un]": ["<unk>", "un", "<unk>"],
        "İ": ["i"],
    }
    assert {text: pieces(tokenizer, text) for text in expected} == expected
    assert read(graph, expected) == tokenizer.encode(list(expected))


def test_accents_and_letters_may_stay():
    tokenizer = make(lowercase=False, strip_accents=False)
    assert pieces(tokenizer, "A a\u0301 İ") == ["<unk>", "<unk>", "<unk>"]
    assert pieces(make(strip_accents=False), "İ") == ["i\u0307"]
    assert pieces(make(split_ideographs=False), "x漢") == ["x", "##漢"]


ANY_TEXTS = st.lists(
    st.lists(st.one_of(st.sampled_from(TRICKY), st.characters(exclude_categories=["Cs"]))).map("".join), max_size=5
)


def halves_agree(texts, lowercase):
    tokenizer, graph = halves(lowercase)
    rows = tokenizer.encode(texts)
    assert read(graph, texts) == rows
    padded = tf.ragged.constant(rows, ragged_rank=1, dtype=tf.int32).to_tensor()
    assert tokenizer.decode(rows) == [text.decode() for text in graph.decode(padded).numpy()]


@settings(deadline=None, max_examples=20)
@given(ANY_TEXTS)
def test_both_halves_agree_on_any_text(texts):
    halves_agree(texts, lowercase=True)


@pytest.mark.nightly
@settings(deadline=None, max_examples=300)
@given(ANY_TEXTS, st.booleans())
def test_both_halves_agree_on_many_texts_in_either_case(texts, lowercase):
    halves_agree(texts, lowercase)


def test_the_graph_reads_what_is_no_utf8_and_no_texts():
    tokenizer, graph = halves(True)
    assert graph.read(tf.constant([b"a\xff b", b"\xc3"])).to_list() == tokenizer.encode(["a b", ""])
    assert graph.read(tf.constant([], tf.string)).to_list() == []


def test_text_comes_back_as_the_reference_writes_it():
    tokenizer, _ = halves(True)
    ids = {piece: index for index, piece in enumerate(tokenizer.piece_table())}
    row = [ids[piece] for piece in ("##able", "un", "##able", ".", "'", "a")]
    assert tokenizer.decode([row, [UNKNOWN, UNKNOWN], []]) == ["##able unable. ' a", "[UNK] [UNK]", ""]


def test_classes_are_those_of_every_python():
    # Of Unicode 14 and of the reference; a mark that was punctuation only later is none.
    classes = character_classes()
    assert (classes == PUNCTUATION).sum() == 726 and (classes == SPACE).sum() == 1
    reading = Reading()
    removed = [code for code, text in reading.changes().items() if not text]
    assert len(removed) == 137681 + 1567
    assert reading(0x11938) == "\U00011938" and reading(0x1C89) == "\u1c8a" and reading(0x85) == ""
    assert all(reading(code) == chr(code) for code in (0x30000, 0xE0FFF, 0x10FFFF))


def test_saved_and_read_again(tmp_path):
    tokenizer = make(lowercase=False)
    tokenizer.save(tmp_path / "text")
    loaded = load_tokenizer(tmp_path / "text")
    assert loaded.reading == tokenizer.reading and loaded.identity() == tokenizer.identity()
    assert loaded.encode(["unable A"]) == tokenizer.encode(["unable A"])


def test_what_is_no_vocabulary_is_refused(tmp_path):
    with pytest.raises(InputError, match="`pieces`.*'a'"):
        WordPieceTokenizer(["a"], [0], Reading())
    with pytest.raises(InputError, match="'a' twice"):
        make(words=("a", "a"))
    (tmp_path / "text.json").write_text('{"kind": "wordpiece", "reading": {"upper": true}}', encoding="utf-8")
    with pytest.raises(InputError, match="'reading'.*{'upper': True}"):
        load_tokenizer(tmp_path / "text")
