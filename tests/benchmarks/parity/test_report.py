"""The page of parity: what is counted, and what its tables and differences say."""

import dataclasses

import numpy as np
import pytest

from benchmarks.parity.measure import Count, Ids, Result, compare, relative
from benchmarks.parity.report import markdown


class Tokenizer:
    def __init__(self, original_ids, vocab_size=None):
        if original_ids is not None:
            self.original_ids = original_ids
        self.vocab_size = vocab_size


RESULT = Result(
    "GPT-7",
    "machine, commit 7",
    {"alone": 3e-7, "padded": 0.25},
    {"greedy, Python": Count(5), "greedy, SavedModel": Count(5, [("a `b` | c", "é\x00", "e")])},
    4,
    "GPT's | tokenizers 7",
    1234,
    {"ids, host": Count(2, [("a", "[7, 5, 3]", "[3, 5, 7]"), ("b", "[7, 5]", "[7, 55]")])},
)


def test_differences_and_ids_by_hand():
    found, expected = [np.array([1.0, -3.0]), np.array([[2.0]])], [np.array([1.0, -4.0]), np.array([[2.5]])]
    assert relative(found, expected) == 0.25
    with pytest.raises(ValueError):
        relative(found, expected[:1])
    count = compare(["a", "b"], ["A", "X"], ["A", "B"])
    assert count == Count(2, [("b", "X", "B")]) and str(count) == "**1** of 2"
    assert str(compare(["a"], ["A"], ["A"])) == "1 of 1"
    for tokenizer, size, original, order in (
        (Tokenizer([-1, 5, 5, 0, 1, 2, 3, 4]), 6, [-1, 5, 5, 0, 1, 2, 3, 4], [3, 4, 5, 6, 7, 1]),
        (Tokenizer([0, 0, 1, 2, 3, -1, -1]), 6, [0, 0, 1, 2, 3, 4, 5], [0, 2, 3, 4, 5, 6]),  # rows beyond the pieces
        (Tokenizer(None, 6), 6, [0, 1, 2, 5, 3, 4], [0, 1, 2, 4, 5, 3]),  # characters
    ):
        ids = Ids(tokenizer, size)
        assert list(ids.original) == original and ids.order == order
        assert ids.theirs([2, 4]) == [original[2], original[4]]


def test_the_page_has_a_row_for_each_family_and_shows_what_differs():
    page = markdown(
        [RESULT, Result("Other")],
        {"Third": "left out", "Fourth": "no", "Fifth, small": "left out"},
        "python -m benchmarks.parity",
        3,
    )
    assert "| GPT-7 | 3.0e-07 | 2.5e-01 | – | – |" in page and "| Other | – | – | – | – |" in page
    assert "| GPT-7 | 5 of 5 | **4** of 5 | – | – | – | – | 4 |" in page
    assert "| GPT's | tokenizers 7 | 1,234 | **0** of 2 | – | – | – |" in page
    assert "- GPT-7, greedy, SavedModel: 1. For example\n" in page
    assert r"  - `'a \x60b\x60 | c'` gives `'\xe9\x00'`, there `'e'`" in page
    assert "- GPT-7, ids, host: 2, 1 of them only in the order of ids. For example\n" in page
    assert "Third; Fifth, small: left out.\n\nFourth: no.\n" in page and "machine, commit 7." in page
    assert "Nothing." in markdown([Result("Other")], {}, "", 3)
    assert Result.of(dataclasses.asdict(RESULT)) == RESULT
