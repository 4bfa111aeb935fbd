"""Contestants in processes take turns, or say why they cannot: the protocol from both of its ends."""

import dataclasses
import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks.runner import measure as module
from benchmarks.runner.case import Case, Contestant
from benchmarks.runner.measure import fastest_of_each, is_complete, measure, take_turns
from benchmarks.runner.process import Failed, Process
from benchmarks.runner.worker import Channel

ADAPTER = """
import itertools
from benchmarks.peers.batches import serve_training
from benchmarks.runner.worker import Unavailable

def run(channel):
    kind, steps = channel.task["kind"], itertools.count()
    if kind == "missing":
        import no_such_library
    if kind == "unavailable":
        raise Unavailable("there is no GPU")
    print("noise that a library prints")

    def step(source, target, outputs):
        assert source.shape[1:] == (3,) and target.shape == outputs.shape
        if kind == "dying" and next(steps) == 1:
            raise MemoryError("none left")
        return 0.5

    serve_training(channel, step, 7, ["numpy"])
"""


@pytest.fixture
def case(monkeypatch, tmp_path):
    """Returns a function of kinds of contestants to a case whose adapter is the one above."""
    (tmp_path / "stub_adapter.py").write_text(textwrap.dedent(ADAPTER), encoding="utf-8")
    command = Contestant.command

    def find_command(contestant, task):
        if contestant.name == "unmade":
            raise Failed("pip install nothing==0: ERROR: No matching distribution")
        return command(contestant, task)

    monkeypatch.setattr(Contestant, "command", find_command)

    def make(*kinds, **options):
        variables = {"PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": ""}
        contestants = tuple(
            Contestant(kind, "stub_adapter:run", {"kind": kind}, group="float32", variables=variables) for kind in kinds
        )
        sizes = {"batch": 2, "source_length": 3, "target_length": 5, "vocabulary": 9}
        return Case("made_up", "made up", contestants, work=sizes, **options)

    return make


def test_contestants_run_or_say_why_not(case):
    kinds = ("zoo", "missing", "unavailable", "unmade", "dying")
    found = measure(case(*kinds, compare_fastest=True), rounds=3, threads=1)
    results = {label.partition(",")[0]: result for label, result in found["results"].items()}
    ours = results["zoo"]
    for times in (ours["seconds"], ours["processor"]):
        assert len(times) == 3 and all(0 <= seconds < 5 for seconds in times)
    assert ours["parameters"] == 7 and list(ours["versions"]) == ["numpy"]
    assert ours["loss"] == ours["last"]["loss"] == 0.5 and 5e6 < ours["last"]["peak"] < 500e6
    assert results["missing"]["failed"] == "no_such_library is not installed"
    assert results["unavailable"]["failed"] == "there is no GPU"
    assert results["unmade"]["failed"].startswith("pip install nothing==0")
    assert results["dying"]["failed"] == "ended with status 1: MemoryError: none left"
    (again,) = found["fastest"].values()
    assert len(again["seconds"]) == 3 and "failed" not in again
    assert not is_complete(found) and "cores, commit " in found["where"]


class _ScriptedProcess:
    """A process that tells what it is told to; `absent` cannot start."""

    started = []

    def __init__(self, command, variables):
        self.name, self.is_closed = command, False
        self.started.append(self)

    def close(self):
        self.is_closed = True

    def receive(self):
        if self.name == "absent":
            raise Failed("torch is not installed")
        return {"extra_memory": 10.0 * len(self.started)}

    def request(self):
        assert not self.is_closed
        return {"seconds": {"ours": 1.0, "theirs": 2.0}[self.name], "processor": 0.5}


def test_memory_is_of_fresh_processes_and_time_of_the_last(monkeypatch):
    monkeypatch.setattr(module, "Process", _ScriptedProcess)
    monkeypatch.setattr(_ScriptedProcess, "started", [])
    monkeypatch.setattr(Contestant, "command", lambda contestant, task: contestant.name)
    contestants = tuple(Contestant(name, "adapter:run") for name in ("ours", "theirs", "absent"))
    found = measure(Case("made_up", "made up", contestants), rounds=2, starts=2)
    # Turn by turn; who failed once is not started again.
    assert [process.name for process in _ScriptedProcess.started] == ["ours", "theirs", "absent", "ours", "theirs"]
    assert all(process.is_closed for process in _ScriptedProcess.started)
    assert found["results"]["ours"]["extra_memory"] == [10.0, 40.0]
    assert found["results"]["theirs"]["seconds"] == [2.0, 2.0]
    assert found["results"]["theirs"]["processor"] == [0.5, 0.5], "turns that warm up do not count"
    assert found["results"]["absent"] == {"failed": "torch is not installed"}


def test_each_contestant_counts_in_its_fastest_group(monkeypatch, case):
    groups = ("float32", "bfloat16")
    contestants = tuple(
        Contestant(name, "adapter:run", group=group) for name in ("zoo", "KerasHub", "broken") for group in groups
    )
    seconds = {"zoo, float32": 0.4, "zoo, bfloat16": 0.1, "KerasHub, float32": 0.2, "KerasHub, bfloat16": 0.3}
    results = {label: {"seconds": [value]} for label, value in seconds.items()}
    results["broken, float32"] = {"seconds": [0.001], "failed": "ended"}
    fastest = fastest_of_each(Case("made_up", "made up", contestants), results)
    assert [contestant.label for contestant in fastest] == ["zoo, bfloat16", "KerasHub, float32"]
    asked = []
    monkeypatch.setattr(module, "_measure_group", lambda case, members, what, *rest: asked.append(what) or {})
    measure(case("zoo"))
    measure(dataclasses.replace(case("zoo"), compare_fastest=True))
    assert asked == ["float32", "float32", "fastest"]


def test_contestants_take_turns():
    calls = []

    def contestant(name):
        def measure_once():
            calls.append(name)
            return float(len(calls))

        return measure_once

    measured = take_turns({"a": contestant("a"), "b": contestant("b")}, rounds=2, warm_up=1)
    assert calls == ["a", "b"] * 3
    assert measured == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    assert take_turns({"a": lambda: 1.0}, rounds=0) == {"a": []}


def test_a_process_that_does_not_start_says_so(monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/no/such/place")  # Python does not even start
    with Process([sys.executable, "-c", ""]) as process:
        with pytest.raises(Failed, match="ended with status"):
            process.receive()
        with pytest.raises(Failed, match="ended with status"):
            process.request()


def test_a_worker_is_the_one_to_end_where_memory_runs_out(case):
    contestant = case("zoo").contestants[0]
    task = case("zoo").task(contestant)
    with Process(contestant.command(task), contestant.variables) as process:
        assert process.receive()["parameters"] == 7
        score = Path(f"/proc/{process.pid}/oom_score_adj")
        assert not score.exists() or score.read_text().strip() == "1000"


def test_unequal_work_is_an_error():
    class Silent(Channel):
        def __init__(self):
            self.requests = iter([{}])

        def receive(self):
            return next(self.requests, None)

    def describe(texts):
        raise ValueError("16 tokens were expected")

    with pytest.raises(ValueError, match="16 tokens"):
        Silent().serve(lambda: ["w"], describe)
