"""Shortlists of translators: what is learned, and what is refused."""

import numpy as np
import pytest
from support.tiny_runs import run_quietly

from training.shortlist import main
from training.shortlists.ibm_model_1 import most_probable, translation_table
from training.shortlists.learning import learn_shortlist, share_outside
from zoo.inference.shortlist import Shortlist

SOURCES, TARGETS = [[5, 6, 2], [5, 7, 2], [8, 7, 2]], [[9, 10, 2], [9, 11, 2], [8, 11, 2, 11]]


def test_the_most_frequent_come_first():
    shortlist = learn_shortlist(SOURCES, TARGETS, 9, 13, translations=2, frequent=2)
    assert np.argsort(shortlist.rank).tolist() == [0, 1, 2, 3, 11, 9, 8, 10, 4, 5, 6, 7, 12]
    assert shortlist.always == 6 and shortlist.rank.dtype == np.int32
    expected = most_probable(translation_table(SOURCES, TARGETS), 9, 2)
    np.testing.assert_array_equal(shortlist.translations, expected)
    assert learn_shortlist(SOURCES, TARGETS, 9, 13, frequent=1000).always == 13


def test_translations_are_in_the_shortlist_of_their_source():
    shortlist = learn_shortlist(SOURCES, TARGETS, 9, 13, translations=1, frequent=0)
    assert 10 in np.asarray(shortlist.candidates(np.array([[6]]), 5))
    assert 10 not in np.asarray(shortlist.candidates(np.array([[7]]), 5))


def test_what_is_outside_is_counted_by_batch():
    shortlist = Shortlist(np.zeros((13, 1), np.int32), np.arange(13, dtype=np.int32), 4)
    assert share_outside(shortlist, [[5], [6, 7]], [[4, 5, 6, 2], [9, 2]], 6) == pytest.approx(2 / 6)
    assert share_outside(shortlist, [[5]] * 70, [[4]] * 35 + [[12]] * 35, 5) == pytest.approx(0.5)
    assert share_outside(shortlist, [], [], 6) == 0


def test_bad_usage(text_workdir, labelled_workdir, capsys, subtests):
    for arguments, message in (
        ([text_workdir, "--shortlist", "0"], "--shortlist must be 1 or more. Received: 0."),
        ([text_workdir, "--frequent", "-1"], "--frequent must be 0 or more. Received: -1."),
        ([text_workdir, "--data", "nonsense"], "nonsense"),
        ([labelled_workdir], "a shortlist is for translators"),
        (["preset:dates_rnnsearch"], "preset:dates_rnnsearch cannot be written to; pass a copy"),
    ):
        with subtests.test(message):
            assert run_quietly(main, *arguments) == 2
            assert message in capsys.readouterr().err
