"""Subword regularisation: what is drawn, how often, and that the step decides alone."""

import collections
import math

import numpy as np
import pytest

from training.data.batching import PairBatches
from training.data.sampling import SubwordSampler, samplers
from zoo.errors import InputError
from zoo.text import CharTokenizer, SubwordTokenizer, WordTokenizer
from zoo.vocabulary import END, UNKNOWN

LINES = [
    "the newest and the widest",
    "the lower and the lowest",
    "new and low, wide and slow",
    "newer, wider, lower",
] * 4


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train(LINES, vocab_size=60)


def test_the_text_stays_and_its_tokens_vary(tokenizer):
    rows = [[*row, END] for row in tokenizer.encode(LINES[:4])]
    drawn = [SubwordSampler(tokenizer, 0.2)(rows, [1, step]) for step in range(20)]
    for step in drawn:
        assert tokenizer.decode(step) == tokenizer.decode(rows)
        assert all(row[-1] == END for row in step)
    assert len({str(step) for step in drawn}) == 20 and any(len(step[0]) > len(rows[0]) for step in drawn)


def test_segmentations_are_as_frequent_as_their_probabilities(tokenizer):
    (word,) = tokenizer.encode(["newest"])
    alpha, found = 0.3, tokenizer.segmentations("▁newest", 64)
    weights = {ids: math.exp(alpha * score) for ids, score in found}
    drawn = SubwordSampler(tokenizer, alpha)([word] * 4000, [3])
    counted = collections.Counter(map(tuple, drawn))
    assert set(counted) <= set(weights) and len(found) > 5
    for ids, weight in weights.items():
        share = weight / sum(weights.values())
        assert counted[ids] / 4000 == pytest.approx(share, abs=4 * math.sqrt(share / 4000) + 1e-3)


def test_a_large_power_leaves_the_best(tokenizer):
    rows = [[*row, END] for row in tokenizer.encode(LINES[:4])]
    scores = [sum(map(tokenizer._processor.get_score, row[:-1])) for row in rows]
    drawn = SubwordSampler(tokenizer, 1000.0)(rows, [1])
    assert [sum(map(tokenizer._processor.get_score, row[:-1])) for row in drawn] == pytest.approx(scores)


def test_what_has_an_unknown_token_or_nothing_stays(tokenizer):
    rows = [[UNKNOWN, *tokenizer.encode(["Ω"])[0], UNKNOWN, END], [END], [], [UNKNOWN]]
    assert SubwordSampler(tokenizer, 0.1)(rows, [1]) == rows


def test_other_tokenizers_are_refused():
    for other in (CharTokenizer.train(["ab"]), WordTokenizer.train(["some words here"], vocab_size=20)):
        with pytest.raises(InputError, match=r"data\.sampling.*unigram"):
            samplers(0.1, [other])
    assert samplers(0.0, [other]) is None


def test_the_batch_of_a_step_depends_on_seed_and_step_alone(tokenizer):
    rows = [[*row, END] for row in tokenizer.encode(LINES)]
    options = {"batch_tokens": 80, "steps": 6, "samplers": samplers(0.2, [tokenizer, tokenizer])}
    one, other = PairBatches(rows, rows, seed=5, **options), PairBatches(rows, rows, seed=5, **options)
    whole = [one[index] for index in range(6)]
    other.skip = 3
    for index in range(3):
        np.testing.assert_array_equal(other[index][0]["source"], whole[3 + index][0]["source"])
        np.testing.assert_array_equal(other[index][1], whole[3 + index][1])
    source, target = whole[0][0]["source"], whole[0][1]
    assert tokenizer.decode(_unpadded(source)) == tokenizer.decode(_unpadded(target))
    assert _unpadded(source) != _unpadded(target)  # each side is drawn for itself
    of_steps = PairBatches(rows[:1], rows[:1], seed=5, **options)
    assert len({str(of_steps[step][0]["source"]) for step in range(6)}) > 1, "the same text anew at each step"


def _unpadded(rows):
    return [[token for token in row if token] for row in rows.tolist()]
