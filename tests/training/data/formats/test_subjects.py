"""The `subjects` dataset: only the order of two nouns tells which of them does something."""

import re
from collections import Counter

import pytest

from training.data import load_data
from training.data.formats import subjects
from zoo.errors import InputError

SPLITS = ("train", "val", "test")


@pytest.fixture(scope="module")
def splits():
    return {name: subjects.examples(name) for name in SPLITS}


def _nouns(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text.lower()) if word in subjects.NOUNS]


def test_only_the_order_tells_the_subject(splits):
    """It is the first noun, and in pairs of sentences of the same words another one."""
    for made in splits.values():
        for (text, label), (other, other_label) in zip(made[::2], made[1::2], strict=True):
            for sentence, subject in ((text, label), (other, other_label)):
                first, second = _nouns(sentence)
                assert subject == first != second
            assert Counter(re.findall(r"\w+", text.lower())) == Counter(re.findall(r"\w+", other.lower()))
            assert label != other_label


def test_nouns_that_meet_in_one_split_meet_in_no_other(splits):
    met = {name: {frozenset(_nouns(text)) for text, _ in made} for name, made in splits.items()}
    assert not met["train"] & met["val"] and not met["train"] & met["test"] and not met["val"] & met["test"]
    assert frozenset(("cat", "mat")) in met["test"]
    assert {noun for pair in met["train"] for noun in pair} == set(subjects.NOUNS)


def test_sizes_and_seeds(splits):
    assert {name: len(dict(made)) for name, made in splits.items()} == subjects.SIZES
    assert subjects.examples("val", seed=0) == splits["val"] != subjects.examples("val", seed=5)


def test_spec():
    data = load_data("subjects", seed=3)
    assert (data.spec, data.task, data.splits) == ("subjects", "classifier", SPLITS)
    assert data.split("val").texts == [text for text, _ in subjects.examples("val", seed=3)]
    assert data.classes == sorted(subjects.NOUNS)
    with pytest.raises(InputError, match="Unknown split 'tests'"):
        subjects.nouns("tests")
