"""Tokenizers that come with the checkpoints of others: ids as their reference has them, in both halves."""

import json

import numpy as np
import pytest
import tensorflow as tf
from support import checkpoints

from export.graph.tokenizers import tokenizer_graph
from zoo.text import ByteLevelBPETokenizer, MappedSubwordTokenizer, ReorderedSubwordTokenizer, load_tokenizer
from zoo.text.byte_level_bpe import AddedToken
from zoo.vocabulary import PAD, SPECIAL_PIECES, UNKNOWN


def read_json(*path):
    return json.loads(checkpoints.FIXTURES.joinpath(*path).read_text(encoding="utf-8"))


def marian():
    """Returns SentencePiece with the ids of a list, tidy, and the id of each of its ids in the checkpoint."""
    ids = {piece: index for piece, index in read_json("marian", "vocab.json").items() if piece not in SPECIAL_PIECES}
    model = (checkpoints.FIXTURES / "marian" / "source.spm").read_bytes()
    original = [-1, -1, 0, 1, *ids.values()]
    return MappedSubwordTokenizer(model, [*SPECIAL_PIECES, *ids], original, tidy=True), original


def llama():
    """Returns SentencePiece whose ids are in another order, with one that is no piece."""
    model = (checkpoints.FIXTURES / "llama" / "tokenizer.model").read_bytes()
    original = [-1, 1, 2, 0, *range(299, 2, -1), -1]
    return ReorderedSubwordTokenizer(model, original), original


def gpt_neox():
    """Returns BPE of composed bytes, in which two to four spaces are tokens."""
    described = read_json("gpt_neox", "tokenizer.json")
    pieces = {piece: index for piece, index in described["model"]["vocab"].items() if index > 1}
    texts = [*SPECIAL_PIECES[:3], *pieces, " " * 4, " " * 3, " " * 2]
    original = [1, -1, 0, *pieces.values(), 300, 301, 302]
    added = [AddedToken(texts[-place], len(texts) - place, True) for place in (1, 2, 3)]
    texts[-3:] = [""] * 3
    return ByteLevelBPETokenizer(texts, described["model"]["merges"], (), original, added, compose=True), original


@pytest.mark.parametrize("make", [marian, llama, gpt_neox])
def test_ids_are_those_of_the_reference_in_both_halves(make, tmp_path):
    tokenizer, original = make()
    expected = checkpoints.expected(make.__name__)
    tokenizer.save(tmp_path / "text")
    loaded = load_tokenizer(tmp_path / "text")
    assert loaded.identity() == tokenizer.identity()

    rows, texts = tokenizer.encode(expected["texts"]), expected["texts"]
    assert [[original[index] for index in row] for row in rows] == expected["token_ids"]
    assert loaded.encode(texts) == rows
    graph = tokenizer_graph(tokenizer)
    assert graph.encode(tf.constant([text.encode() for text in texts])).to_list() == rows

    rows += [[PAD, UNKNOWN, tokenizer.vocab_size - 1, tokenizer.vocab_size], [row[0] for row in rows[4:9]]]
    padded = tf.ragged.constant(rows, tf.int32, 1).to_tensor(PAD)
    found = loaded.decode(rows)
    assert [text.decode() for text in graph.decode(padded).numpy()] == found
    if "decoded" in expected:
        assert found[: len(texts)] == expected["decoded"]


def test_texts_come_back():
    for make in (llama, gpt_neox):
        tokenizer, _ = make()
        texts = ["a man", "it's 25 €", "naïve 漢字 😀", "", "spaces   inside"]
        assert tokenizer.decode(tokenizer.encode(texts)) == texts


def test_a_code_is_one_token_where_a_text_begins_with_one_and_texts_are_tidy():
    tokenizer, original = marian()
    assert [original[index] for index in tokenizer.encode([">>fra<< a"])[0]] == [2, 8]
    assert tokenizer.encode([">>xyz<<a"])[0][0] == UNKNOWN and original.index(2) not in tokenizer.encode(["a >>fra<<"])
    pieces = [*SPECIAL_PIECES, "▁Oh", "▁,", "▁it", "▁'s", "▁late", "▁!"]
    tidy = MappedSubwordTokenizer(tokenizer.model, pieces, range(len(pieces)), tidy=True)
    rows = [[4, 5, 6, 7, 8, 9], []]
    assert tidy.decode(rows) == ["Oh, it's late!", ""]
    graph = tokenizer_graph(tidy).decode(np.array([rows[0], [PAD] * 6], "int32"))
    assert [text.decode() for text in graph.numpy()] == ["Oh, it's late!", ""]
