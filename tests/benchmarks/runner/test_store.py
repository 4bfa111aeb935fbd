"""What was measured is stored, and measured again only where it has to be."""

import json

import pytest

from benchmarks.runner import store
from benchmarks.runner.store import load_or_measure


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(store, "FOLDER", tmp_path / "bench")
    return tmp_path / "bench"


def test_a_finished_run_is_not_repeated(folder):
    runs = []

    def measure():
        runs.append(None)
        return {"seconds": [len(runs)]}

    assert load_or_measure("training/a_case", {"rounds": 3}, measure) == {"seconds": [1]}
    assert load_or_measure("training/a_case", {"rounds": 3}, measure) == {"seconds": [1]}
    assert load_or_measure("training/a_case", {"rounds": 5}, measure) == {"seconds": [2]}, "other settings, another run"
    assert load_or_measure("training/a_case", {"rounds": 5}, measure, fresh=True) == {"seconds": [3]}
    assert load_or_measure("training/other", {"rounds": 5}, measure) == {"seconds": [4]}
    assert load_or_measure("training/a_case", {"rounds": 3}, measure) == {"seconds": [1]}, "which is stored as well"
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 3


def test_what_is_not_complete_is_not_stored(folder):
    results = iter([{"failed": True}, {"failed": False}, {}])
    for expected in (True, False, False):
        result = load_or_measure("case", {}, lambda: next(results), is_complete=lambda result: not result["failed"])
        assert result["failed"] is expected
    with pytest.raises(ZeroDivisionError):
        load_or_measure("case", {}, lambda: 1 / 0, fresh=True)
    (file,) = folder.iterdir()
    assert json.loads(file.read_text())["found"] == {"failed": False}, "the former result is left"
