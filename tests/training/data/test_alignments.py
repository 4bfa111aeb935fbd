"""Word alignments: how they are read, and which tokens they join."""

import numpy as np
import pytest

from training.data import Pairs
from training.data.alignments import read_alignments, token_links, word_spans
from training.data.batching import PairBatches
from zoo.errors import InputError
from zoo.text.characters import CharTokenizer
from zoo.text.subwords import SubwordTokenizer, WordTokenizer

PAIRS = Pairs(["the old houses", "a b", ""], ["die alten Häuser", "c", ""])
LINES = ["the old houses were low", "he holds a low house", "old men hold houses"]


def test_links_are_read(tmp_path):
    path = tmp_path / "train.align"
    path.write_text("0-0 2-2  1-1\n1-0\n\n")
    assert read_alignments(path, PAIRS) == [[(0, 0), (2, 2), (1, 1)], [(1, 0)], []]


BAD = (
    ("0-0\n", "train.align: .* 3 pairs.* Received: 1"),
    ("0-0\n0-0 1:0\n\n", "train.align:2: .* Received: '1:0'"),
    ("0-0\n0--1\n\n", "train.align:2: .* Received: '0--1'"),
    ("0-0\n²-0\n\n", "train.align:2: .* Received: '²-0'"),
    ("0-3\n\n\n", "train.align:1: 0-3 .*target.* 3 "),
    ("\n2-0\n\n", "train.align:2: 2-0 .*source.* 2 "),
    ("", "empty file"),
)


def test_bad_alignments(tmp_path, subtests):
    path = tmp_path / "train.align"
    for lines, message in BAD:
        with subtests.test(message):
            path.write_text(lines, encoding="utf-8")
            with pytest.raises(InputError, match=message):
                read_alignments(path, PAIRS)


@pytest.mark.parametrize("kind", [SubwordTokenizer, WordTokenizer, CharTokenizer])
def test_each_word_has_its_tokens(kind):
    tokenizer = kind.train(LINES, **({} if kind is CharTokenizer else {"vocab_size": 40}))
    texts = [*LINES, "  men   were low ", "houses", ""]
    rows = tokenizer.encode(texts)
    for text, row, spans in zip(texts, rows, word_spans(tokenizer, texts, rows), strict=True):
        assert [tokenizer.decode([[row[i] for i in span]])[0].strip() for span in spans] == text.split()
        assert all(first.stop <= second.start for first, second in zip(spans, spans[1:], strict=False))


def test_a_run_of_unknown_words_is_one_token():
    tokenizer = WordTokenizer.train(LINES, vocab_size=40)
    rows = tokenizer.encode(["old zzz yyy men", "zzz"])
    assert word_spans(tokenizer, ["old zzz yyy men", "zzz"], rows) == [
        [range(0, 1), range(1, 2), range(1, 2), range(2, 3)],
        [range(0, 1)],
    ]


def test_tokens_that_are_not_those_of_the_words():
    tokenizer = SubwordTokenizer.train(LINES, vocab_size=40)
    assert word_spans(tokenizer, ["old men"], [tokenizer.encode(["low men"])[0]]) == [None]
    assert token_links([(0, 0)], None, [range(1)]).shape == (0, 2)


def test_tokens_of_linked_words_belong_together():
    links = token_links([(0, 1), (1, 1), (0, 1)], [range(0, 2), range(2, 3)], [range(0, 1), range(1, 3)])
    assert links.tolist() == [[0, 1], [0, 2], [1, 1], [1, 2], [2, 1], [2, 2]]


def test_batches_have_a_matrix_of_each_pair():
    links = [np.array([[0, 1], [3, 0]]), np.zeros((0, 2), int)]
    batches = PairBatches([[5, 6, 2], [7, 2]], [[8, 9, 2], [5, 2]], links, batch_tokens=50)
    inputs, outputs, _ = batches[0]
    first = int(np.flatnonzero(inputs["source"][:, 0] == 5)[0])
    expected = np.zeros((2, *outputs.shape[1:], inputs["source"].shape[1]), "int32")
    expected[first, 1, 0] = 1  # the other link is of a token that has been cut off
    assert inputs["alignment"].dtype == np.int32
    np.testing.assert_array_equal(inputs["alignment"], expected)
