"""The command that makes the presets, without training any."""

import pytest

import training.presets
from zoo.errors import InputError
from zoo.presets import FOLDER


@pytest.fixture
def made(monkeypatch):
    calls = []
    monkeypatch.setattr(training.presets, "make", lambda name, folder: calls.append((name, folder)))
    return calls


def test_nothing_is_replaced_unless_named(made):
    with pytest.raises(InputError, match=r"Name the presets to replace in the package, of dates_rnnsearch, .*--output"):
        training.presets.main([])
    assert made == []


def test_a_named_one_is_replaced(made):
    training.presets.main(["dates_rnnsearch"])
    assert made == [("dates_rnnsearch", FOLDER / "dates_rnnsearch")]


def test_copies_of_all(made, tmp_path):
    training.presets.main(["--output", str(tmp_path)])
    assert made == [(name, tmp_path / name) for name in training.presets.RECIPES]


def test_an_unknown_name(made):
    with pytest.raises(InputError, match="dates_rnnsearch"):
        training.presets.main(["dates_rnnsearhc"])
    assert made == []
