"""The part `natural` of `senses`: broad in words and in how sentences are built; tested on sentences of people."""

import re
from collections import Counter, defaultdict

import pytest

from training.data.formats.senses import natural, twins
from training.data.formats.senses.english import Verb, plural
from zoo.errors import InputError

pytestmark = pytest.mark.nightly  # writing the corpus takes longer than all other formats

LABELS = [f"{word}.{sense}" for word, senses in twins.SENSES.items() for sense in senses]
FORMS = {word: {word, plural(word)} for word in twins.SENSES}


@pytest.fixture(scope="module")
def splits():
    return {name: natural.examples(name) for name in ("train", "val", "test")}


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def test_a_sense_has_many_clues(subtests):
    """Verbs, adjectives and nouns; and those of the two senses of a word are others."""
    assert sorted(natural.clues()) == sorted(LABELS)
    for label in LABELS:
        with subtests.test(label):
            word = label.split(".")[0]
            own = natural.clues()[label]
            kinds = ("do", "does", "is", "agents", "things", "stuff", "places", "acts")
            assert min(len(own[key]) for key in kinds) >= 10
            heads = _heads(label)
            (other,) = (_heads(other) for other in natural.clues() if other.startswith(f"{word}.") and other != label)
            assert len(heads - other) >= 150
            assert len(heads & other) < 0.1 * len(heads)


def _heads(label: str) -> set[str]:
    return {
        clue.base if isinstance(clue, Verb) else clue for items in natural.clues()[label].values() for clue in items
    }


def test_clues_name_no_word_of_two_senses():
    """Else it would be unclear which word is asked for."""
    forms = set().union(*FORMS.values())
    for label in natural.clues():
        found = {clue for clue in _heads(label) if set(_words(clue)) & forms}
        assert not found, label


def test_sizes_and_labels(splits):
    counts = Counter(label for _, label in splits["train"])
    assert sum(counts.values()) == natural.SIZE and len(dict(splits["train"])) == natural.SIZE
    assert set(counts) == set(LABELS) and max(counts.values()) - min(counts.values()) <= 1
    assert len(splits["val"]) >= 100 and len(splits["test"]) >= 150
    for name in ("val", "test"):
        assert {label for _, label in splits[name]} == set(LABELS)


def test_the_word_is_there_once_in_training(splits):
    forms = set().union(*FORMS.values())
    for text, label in splits["train"][:9_000]:
        there = [word for word in _words(text) if word in forms]
        assert there and set(there) <= FORMS[label.split(".")[0]], text


def test_the_word_is_there_in_sentences_of_people(splits):
    for name in ("val", "test"):
        for text, label in splits[name]:
            assert FORMS[label.split(".")[0]] & set(_words(text)), text


def test_sentences_of_people_are_not_made_by_the_grammar(splits):
    made = {" ".join(_words(text)) for text, _ in splits["train"]}
    val, test = ({" ".join(_words(text)) for text, _ in splits[name]} for name in ("val", "test"))
    assert len(val) == len(splits["val"]) and len(test) == len(splits["test"])
    assert not made & val and not made & test and not val & test
    unseen = {word for text in test for word in text.split()} - {word for text in made for word in text.split()}
    assert len(unseen) >= 30  # words never seen in training


def test_how_sentences_are_built(splits):
    """There is what there is in sentences that people write."""
    found = defaultdict(int)
    sentences = splits["train"][:18_000]
    for text, label in sentences:
        word = label.split(".")[0]
        form = "|".join(FORMS[word])
        found["question"] += text.endswith("?")
        found["passive"] += bool(re.search(rf"\b({form}) (was|were|must be|can be) \w+ed\b", text))
        found["first person"] += bool(re.search(r"\b(I|we|my|our)\b", text))
        found["plural"] += plural(word) in _words(text)
        found["capitals"] += text.isupper()
        found["lower case"] += text.islower()
        found["no stop"] += text[-1].isalpha()
        found["at the beginning"] += bool(re.match(rf"({form})\b", text, flags=re.IGNORECASE))
        found["at the end"] += bool(re.search(rf"\b({form})\W*$", text, flags=re.IGNORECASE))
        found["at a comma"] += bool(re.search(rf"\b({form}),", text, flags=re.IGNORECASE))
        found["two clauses"] += bool(re.search(r"\b(because|while|although|when|after|since)\b", text))
        found["Apple"] += "Apple" in text
        found["apple.company in lower case"] += label == "apple.company" and "apple" in text
    assert min(found.values()) >= 90, dict(found)


def test_both_senses_in_one_sentence(splits):
    """Somewhere far from the word there are clues of its other sense."""
    steep = re.compile(r"\b(angler|otter|canoe|trout|reeds|heron|kayak)s?\b", flags=re.IGNORECASE)
    assert sum(label == "bank.money" and bool(steep.search(text)) for text, label in splits["train"]) >= 5


def test_seeds(splits, monkeypatch):
    monkeypatch.setattr(natural, "SIZE", 360)
    first, again, other = (natural.examples("train", seed=seed) for seed in (0, 0, 5))
    assert first == again != other and len(first) == 360
    assert natural.examples("test", seed=5) == splits["test"]


def test_errors():
    with pytest.raises(InputError, match="'tests'.*test"):
        natural.examples("tests")
