"""IBM model 1, against loops written from its formulas."""

from collections import defaultdict

import numpy as np
import pytest

from training.shortlists import ibm_model_1
from training.shortlists.ibm_model_1 import most_probable, translation_table

NULL = -1


def by_loops(sources, targets, iterations):
    """Returns t(f | e) by (e, f), null left out."""
    pairs = [([*source, NULL], target) for source, target in zip(sources, targets, strict=True)]
    table = {(e, f): 1.0 for source, target in pairs for e in source for f in target}
    for _ in range(iterations):
        counts, totals = defaultdict(float), defaultdict(float)
        for source, target in pairs:
            for f in target:
                normaliser = sum(table[e, f] for e in source)
                for e in source:
                    counts[e, f] += table[e, f] / normaliser
                    totals[e] += table[e, f] / normaliser
        table = {(e, f): counts[e, f] / totals[e] for e, f in counts}
    return {link: value for link, value in table.items() if link[0] != NULL}


def by_link(table):
    return {(e, f): t for e, f, t in zip(*(column.tolist() for column in table), strict=True)}


@pytest.fixture
def pairs():
    """Random pairs, of which some are empty and some tokens come twice."""
    chance = np.random.default_rng(0)
    sources = [chance.integers(4, 11, chance.integers(0, 7)).tolist() for _ in range(53)]
    targets = [chance.integers(4, 17, chance.integers(0, 5)).tolist() for _ in range(53)]
    assert [] in sources and [] in targets
    return sources, targets


def test_it_is_what_loops_find(pairs, monkeypatch):
    for iterations, part in ((1, 20_000), (4, 7)):
        monkeypatch.setattr(ibm_model_1, "PART", part)
        expected = by_loops(*pairs, iterations)
        source, target, probability = translation_table(*pairs, iterations)
        found = by_link((source, target, probability))
        assert found.keys() == expected.keys()
        assert found == pytest.approx(expected, abs=1e-12)
        np.testing.assert_allclose(np.bincount(source, probability)[np.unique(source)], 1.0)


def test_it_finds_out_which_word_is_which():
    """das Haus, das Buch, ein Buch: the example that textbooks have."""
    found = by_link(translation_table([[5, 6], [5, 7], [8, 7]], [[15, 16], [15, 17], [18, 17]], 50))
    for source, target in ((5, 15), (6, 16), (7, 17), (8, 18)):
        assert found[source, target] > 0.9


def test_there_may_be_nothing_to_learn():
    for rows in (([], []), ([[]], [[]]), ([[5]], [[]]), ([[]], [[5]])):
        table = translation_table(*rows)
        assert [len(column) for column in table] == [0, 0, 0]
        np.testing.assert_array_equal(most_probable(table, 3, 2), np.zeros((3, 2)))


def test_the_most_probable_come_first():
    table = np.array([1, 1, 1, 3]), np.array([5, 7, 9, 6]), np.array([0.25, 0.5, 0.25, 1.0])
    np.testing.assert_array_equal(most_probable(table, 4, 2), [[0, 0], [7, 5], [0, 0], [6, 0]])
    assert most_probable(table, 4, 2).dtype == np.int32
