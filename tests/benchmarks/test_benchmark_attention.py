"""The command that measures attention layers, its worker processes and its tables."""

import json
from pathlib import Path

import pytest

from benchmarks import attention
from benchmarks import kept as keeping
from benchmarks.attention import Failed, Found, Worker, measure, table
from benchmarks.cases import CASES, Case, Contestant, Sizes, Target
from benchmarks.timing import Spread

SIZES = Sizes(batch=1, length=16, dim=8)
LONGER = Sizes(batch=1, length=64, dim=8)
CASE = Case(
    "made_up",
    "made up",
    (
        Contestant("ours", None, SIZES, "two projections"),
        Contestant("theirs", None, SIZES),
        Contestant("ours, T=64", None, LONGER),
        Contestant("absent", None, SIZES),
    ),
    (
        Target("speed", "speed", "ours", "theirs", 4.0),
        Target("memory", "memory", "ours", "theirs", 40.0),
        Target("bytes", "bytes", "ours", bound=140e6),
        Target("time slope", "time slope", "ours, T=64", "ours", 1.15),
        Target("memory slope", "memory slope", "ours, T=64", "ours", 1.15),
        Target("reported only", "speed", "ours", "theirs"),
        Target("of an absent one", "speed", "ours", "absent", 1.0),
    ),
)


def _found():
    found = Found(CASE, "a machine, commit abc")
    found.time = {
        "ours": Spread(0.1, 0.09, 0.12),
        "theirs": Spread(0.45, 0.4, 0.5),
        "ours, T=64": Spread(0.4, 0.4, 0.4),
    }
    found.memory = {name: Spread(size, size, size) for name, size in (("ours", 100e6), ("theirs", 3900e6))}
    found.memory["ours, T=64"] = Spread(1600e6, 1600e6, 1600e6)
    found.failed = {"absent": "torch is not installed"}
    return found


def test_table():
    text = table(_found())
    for line in (
        "### made up",
        "| ours | two projections | 100.0 ms (90.0–120.0) | 100.0 MB (100.0–100.0) |",
        "| absent |  | not measured: torch is not installed |  |",
        "| speed | 4.50× | ≥ 4.00× | met |",
        "| memory | 1/39.0 | ≤ 1/40.0 | missed |",
        "| bytes | 100.0 MB | ≤ 140.0 MB | met |",
        "| time slope | 1.00 | ≤ 1.15 | met |",  # four times the length, four times the time
        "| memory slope | 2.00 | ≤ 1.15 | missed |",
        "| reported only | 4.50× | reported |  |",
        "| of an absent one | not yet measured | ≥ 1.00× | |",
    ):
        assert line in text.splitlines(), line


def test_measurements_survive_as_plain_data():
    found = _found()
    again = Found.from_json(CASE, json.loads(json.dumps(found.to_json())))
    assert table(again) == table(found) and again.time == found.time


class _Scripted:
    """A worker that tells what it is told to; `theirs` has no memory to tell of."""

    started = []

    def __init__(self, case, contestant, tiny):
        self.name, self.ended = contestant.name, False
        self.started.append(self)

    def close(self):
        self.ended = True

    def extra_memory(self):
        if self.name == "absent":
            raise Failed("torch is not installed")
        return 10.0 * len(self.started)

    def seconds(self):
        assert not self.ended
        return {"ours": 1.0, "theirs": 2.0, "ours, T=64": 4.0}[self.name]


def test_memory_is_of_fresh_processes_and_time_of_the_last(monkeypatch):
    monkeypatch.setattr(attention, "Worker", _Scripted)
    monkeypatch.setattr(_Scripted, "started", [])
    found = measure(CASE, rounds=2, memory_rounds=2)
    # Turn by turn; who failed once is not started again.
    assert [worker.name for worker in _Scripted.started] == [
        *("ours", "theirs", "ours, T=64", "absent"),
        *("ours", "theirs", "ours, T=64"),
    ]
    assert all(worker.ended for worker in _Scripted.started)
    assert found.memory["ours"] == Spread.of([10.0, 50.0])
    assert found.time["theirs"] == Spread(2.0, 2.0, 2.0)
    assert found.failed == {"absent": "torch is not installed"}


@pytest.mark.slow
def test_worker_measures_in_a_process_of_its_own():
    case = CASES["multi_head"]
    with Worker(case, case.contestant("keras.layers.MultiHeadAttention"), tiny=True) as worker:
        assert 0 <= worker.extra_memory() < 100e6
        score = Path(f"/proc/{worker.pid}/oom_score_adj")
        assert not score.exists() or score.read_text().strip() == "1000"
        assert 0 < worker.seconds() < 60
        assert 0 < worker.seconds() < 60


def test_worker_that_dies_says_why(monkeypatch):
    case = CASES["multi_head"]
    monkeypatch.setenv("PYTHONHOME", "/no/such/place")  # Python does not even start
    with Worker(case, case.contestants[0], tiny=True) as worker:
        with pytest.raises(Failed, match="ended with status"):
            worker.extra_memory()
        with pytest.raises(Failed, match="ended with status"):
            worker.seconds()


def test_command(monkeypatch, tmp_path, capsys):
    given = {}

    def measured(case, rounds, memory_rounds, tiny):
        given.update(name=case.name, rounds=rounds, memory_rounds=memory_rounds, tiny=tiny)
        return _found()

    monkeypatch.setattr(keeping, "FOLDER", tmp_path / "bench")
    monkeypatch.setattr(attention, "measure", measured)
    monkeypatch.setitem(CASES, "additive", CASE)
    file = tmp_path / "table.md"
    arguments = ["--case", "additive", "--rounds", "5", "--memory_rounds", "2", "--tiny", "--output", str(file)]
    assert attention.main(arguments) == 0
    assert given == {"name": "made_up", "rounds": 5, "memory_rounds": 2, "tiny": True}
    out = capsys.readouterr().out
    assert out == file.read_text(encoding="utf-8")
    assert "commit" in out and "median of 5 turns" in out and "Tiny sizes" in out and "### made up" in out


@pytest.mark.parametrize("arguments", [["--case", "nothing"], ["--rounds", "0"]])
def test_command_with_bad_arguments(arguments, capsys):
    with pytest.raises(SystemExit) as error:
        attention.main(arguments)
    assert error.value.code == 2
    assert arguments[1] in capsys.readouterr().err


@pytest.mark.slow
def test_every_case_runs():
    for case in CASES.values():
        found = measure(case, rounds=1, memory_rounds=1, tiny=True)
        told = {name: reason for name, reason in found.failed.items() if "ended with status" in reason}
        assert not told, case.name
