"""The part `twins` of `senses`: only the order tells the sense, and test sentences are built like no other."""

import re
from collections import Counter

import numpy as np
import pytest

from training.data import LabelledData, load_data
from training.data.formats.senses import twins
from zoo.errors import InputError

SPLITS = ("train", "val", "test")


@pytest.fixture(scope="module")
def splits():
    return {name: twins.examples(name) for name in SPLITS}


def _pairs(made):
    return list(zip(made[::2], made[1::2], strict=True))


def _template(text: str, split: str) -> int:
    """Returns the number of the only template that a sentence fits."""
    patterns = [re.sub(r"\\\{\w+\\\}", ".+", re.escape(template)) for template in twins.TEMPLATES[split]]
    fitting = [number for number, pattern in enumerate(patterns) if re.fullmatch(pattern, text)]
    assert len(fitting) == 1, text
    return fitting[0]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def test_a_pair_has_the_same_tokens_and_different_labels(splits):
    """So a model that does not see the order is right about exactly one half of each pair, whatever it has learned."""
    for (text, label), (other_text, other_label) in (pair for made in splits.values() for pair in _pairs(made)):
        for tokens in (str.split, list):
            assert Counter(tokens(text.lower())) == Counter(tokens(other_text.lower()))
        assert text != other_text and label != other_label
        word = label.split(".")[0]
        assert word == other_label.split(".")[0]
        assert text.split().count(word) == 1


def test_a_bag_of_words_is_at_chance(splits):
    """Logistic regression on counts of words learns which word it is, and nothing of its sense."""
    train = splits["train"][:4_000]
    texts = [text for text, _ in train]
    vocabulary = {word: column for column, word in enumerate(sorted({w for text in texts for w in _words(text)}))}
    classes = sorted({label for _, label in train})

    def counts(made):
        table = np.zeros((len(made), len(vocabulary)), np.float32)
        for row, (text, _) in enumerate(made):
            for word in _words(text):
                table[row, vocabulary[word]] += 1
        return table, np.array([classes.index(label) for _, label in made])

    inputs, labels = counts(train)
    weights = np.zeros((len(vocabulary), len(classes)), np.float32)
    for _ in range(40):
        scores = np.exp(inputs @ weights)
        wrong = scores / scores.sum(axis=1, keepdims=True) - np.eye(len(classes), dtype=np.float32)[labels]
        weights -= 3 * inputs.T @ wrong / len(labels)
    inputs, labels = counts(splits["test"])
    answers = np.argmax(inputs @ weights, axis=1)
    words = np.array([name.split(".")[0] for name in classes])
    assert np.mean(words[answers] == words[labels]) > 0.99
    # Within a pair the scores differ by rounding only; one of the two is right.
    right = (answers == labels).reshape(-1, 2).sum(axis=1)
    assert np.mean(right == 1) > 0.99
    assert 0.49 < np.mean(answers == labels) < 0.51


def test_the_nearest_verb_before_it_tells_the_sense(splits):
    for text, label in (example for made in splits.values() for example in made[:1000]):
        word, sense = label.split(".")
        before = " ".join(_words(text.partition(f" {word} ")[0])) + " "
        places = {
            (before.rfind(f" {form} "), len(form)): name
            for name, verbs in twins.SENSES[word].items()
            for verb in verbs.split(", ")
            for form in verb.split("/")
        }
        assert places[max(places)] == sense, text


def test_splits_share_no_template(splits):
    frames = [template for name in SPLITS for template in twins.TEMPLATES[name]]
    assert len(set(frames)) == len(frames) == 64
    skeletons = [re.sub(r"\{\w+\}", "", frame).lower() for frame in frames]
    assert len({" ".join(skeleton.split()) for skeleton in skeletons}) == len(frames)
    for name, made in splits.items():
        assert {_template(text, name) for text, _ in made[:600]} == set(range(len(twins.TEMPLATES[name])))


def test_what_is_exchanged_touches_no_punctuation():
    for templates in twins.TEMPLATES.values():
        for template in templates:
            assert len(re.findall(r" \{x[12]\} \w", template)) == 2, template
            assert template[-1] in ".?"


def test_sizes_and_labels(splits):
    assert {name: len(made) for name, made in splits.items()} == {"train": 12_000, "val": 1_000, "test": 2_000}
    expected = {f"{word}.{sense}" for word, both in twins.SENSES.items() for sense in both}
    assert len(twins.SENSES) == 18 and len(expected) == 36
    for name, made in splits.items():
        assert len(dict(made)) == len(made)
        counts = Counter(label for _, label in made)
        assert set(counts) == expected
        assert max(counts.values()) - min(counts.values()) <= 1, name


def test_a_verb_suits_one_sense():
    for word, both in twins.SENSES.items():
        forms = [re.split("/|, ", verbs) for verbs in both.values()]
        assert len(forms) == 2 and [len(found) for found in forms] == [10, 10], word
        assert set(forms[0]).isdisjoint(forms[1]), word


def test_the_place_of_the_word_does_not_tell(splits):
    """Either sense comes first equally often, or nearly so."""
    firsts = Counter()
    for (text, label), (other, _) in _pairs(splits["train"]):
        word = label.split(".")[0]
        first = text.split().index(word) < other.split().index(word)
        firsts[label.split(".")[1] == next(iter(twins.SENSES[word])), first] += 1
    assert min(firsts.values()) > 0.47 * sum(firsts.values()) / 2


def test_words_of_val_and_test_are_known(splits):
    """What is new in them is how the sentence is built."""
    known = Counter(word for text, _ in splits["train"] for word in _words(text))
    assert min(known.values()) >= 10
    assert known.keys() >= {word for name in ("val", "test") for text, _ in splits[name] for word in _words(text)}


def test_ambiguous_words_are_only_what_is_asked_for(splits):
    for text, label in splits["test"]:
        assert set(_words(text)) & set(twins.SENSES) == {label.split(".")[0]}


def test_this_very_data(splits):
    """Results are only comparable while the data stays."""
    assert twins.examples("test", seed=0) == splits["test"] != twins.examples("test", seed=5)
    assert splits["val"][:2] == [
        ("Yesterday I told them how Felix sued apple and then tasted a good many more again.", "apple.company"),
        ("Yesterday I told them how Felix sued a good many more and then tasted apple again.", "apple.fruit"),
    ]
    assert splits["test"][4:6] == [
        ("Mia had to play with the same bat because Ben wanted to wake what was left so often.", "bat.sport"),
        ("Mia had to play with what was left because Ben wanted to wake the same bat so often.", "bat.animal"),
    ]


def test_spec():
    data = load_data("senses:twins", seed=3)
    assert isinstance(data, LabelledData)
    assert (data.spec, data.task, data.tokenizer, data.splits) == ("senses:twins", "classifier", "words", SPLITS)
    val = data.split("val")
    assert list(zip(val.texts, val.labels, strict=True)) == twins.examples("val", seed=3)
    assert len(data.classes) == 36 and data.classes[:2] == ["apple.company", "apple.fruit"]


def test_errors():
    with pytest.raises(InputError, match="'tests'.*test"):
        twins.examples("tests")
