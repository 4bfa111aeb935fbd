"""What was measured is kept, and measured again only where it has to be."""

import json

import pytest

from benchmarks import kept as module
from benchmarks.kept import kept


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "FOLDER", tmp_path / "bench")
    return tmp_path / "bench"


def test_a_finished_run_is_not_repeated(folder):
    runs = []

    def measure():
        runs.append(None)
        return {"seconds": [len(runs)]}

    assert kept("training/a_case", {"rounds": 3}, measure) == {"seconds": [1]}
    assert kept("training/a_case", {"rounds": 3}, measure) == {"seconds": [1]}
    assert kept("training/a_case", {"rounds": 5}, measure) == {"seconds": [2]}, "with other settings it is another run"
    assert kept("training/a_case", {"rounds": 5}, measure, fresh=True) == {"seconds": [3]}
    assert kept("training/other", {"rounds": 5}, measure) == {"seconds": [4]}
    assert kept("training/a_case", {"rounds": 3}, measure) == {"seconds": [1]}, "which is kept as well"
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 3


def test_what_is_not_final_is_not_kept(folder):
    found = iter([{"failed": True}, {"failed": False}, {}])
    for expected in (True, False, False):
        assert kept("case", {}, lambda: next(found), final=lambda each: not each["failed"])["failed"] is expected


def test_a_run_that_fails_keeps_what_was_there(folder):
    kept("case", {}, lambda: 1)
    with pytest.raises(ZeroDivisionError):
        kept("case", {}, lambda: 1 / 0, fresh=True)
    (file,) = folder.iterdir()
    assert json.loads(file.read_text())["found"] == 1
