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
    with pytest.raises(InputError, match=r"of dates_rnnsearch, .*--output"):
        training.presets.main([])
    with pytest.raises(InputError, match="dates_rnnsearhc.* dates_rnnsearch"):
        training.presets.main(["dates_rnnsearhc"])
    assert made == []


def test_a_named_one_is_replaced_or_all_are_copied(made, tmp_path):
    training.presets.main(["dates_rnnsearch"])
    assert made == [("dates_rnnsearch", FOLDER / "dates_rnnsearch")]
    training.presets.main(["--output", str(tmp_path)])
    assert made[1:] == [(name, tmp_path / name) for name in training.presets.RECIPES]
