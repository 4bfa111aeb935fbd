"""Figures are taken in order, whatever fails, until the time is over; each is written at once."""

import csv
import json
import sys

import pytest

from benchmarks.gpu.figure import JAX, OURS, TORCH, Figure
from benchmarks.gpu.results import COLUMNS, Results
from benchmarks.gpu.runner import RESERVE, Runner
from benchmarks.runner.process import Failed, Process

PEER = "a peer"


class Clock:
    """A clock that others turn."""

    now = 100.0
    measured = 0

    def __call__(self):
        return self.now


class Scripted:
    """A process that answers by a script: seconds that a figure takes, or why it fails, by its label."""

    def __init__(self, clock, script, folder):
        self.clock, self.script, self.folder = clock, script, folder
        self.requests, self.has_ended, self.closed = [], False, False

    def receive(self, within=None):
        return {"card": "a card"}

    def request(self, within=None, /, **request):
        self.requests.append(request)
        if "measure" not in request:
            return {}
        task = request["measure"]
        lines = self.folder / "figures.jsonl"
        assert (lines.read_text(encoding="utf-8").count('"rate"') if lines.exists() else 0) == self.clock.measured
        does = self.script.get(task["label"], 1.0)
        if isinstance(does, Exception):
            self.has_ended = "died" in str(does)
            raise does
        assert within >= does or within == pytest.approx(1.0)
        self.clock.now += does
        self.clock.measured += 1
        return {"rate": 1000 / does, "unit": "tokens", "operations": 7.0, "versions": {"jax": "1.2.3"}}

    def kill(self):
        self.has_ended = True

    def close(self):
        self.closed = True


class Started:
    """Notes the processes that were started."""

    def __init__(self, clock, script, folder):
        self.clock, self.script, self.folder = clock, script, folder
        self.processes = []

    def __call__(self, library):
        process = Scripted(self.clock, self.script, self.folder)
        self.processes.append((library, process))
        return process


@pytest.fixture
def take(tmp_path):
    """Returns a function that takes figures by a script, and returns the results and the processes."""

    def run(figures, script=None, seconds=1000.0):
        clock, results = Clock(), Results(tmp_path, "abc123")
        started = Started(clock, script or {}, tmp_path)
        runner = Runner(results, started, clock.now + seconds + RESERVE, clock)
        runner.run(figures)
        runner.close()
        assert all(process.closed and process.has_ended for _, process in started.processes)
        return results, started.processes

    return run


def figure(name, contestant=OURS, library=JAX, **options):
    return Figure(name, contestant, library, "a kind", **options)


def measured(results):
    return [row["figure"] for row in results.rows if "rate" in row]


def test_each_figure_is_written_at_once_with_card_versions_and_commit(take, tmp_path):
    results, processes = take([figure("one"), figure("one", PEER, TORCH), figure("two")], {"one, ours on JAX": 5.0})
    assert [library for library, _ in processes] == [JAX, TORCH]
    lines = [json.loads(line) for line in (tmp_path / "figures.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines == results.rows
    rows = [
        row
        for row in csv.DictReader((tmp_path / "figures.csv").read_text(encoding="utf-8").splitlines())
        if row["rate"]
    ]
    assert tuple(rows[0]) == COLUMNS
    assert [(row["figure"], row["contestant"], float(row["rate"])) for row in rows] == [
        ("one", OURS, 200.0),
        ("one", PEER, 1000.0),
        ("two", OURS, 1000.0),
    ]
    assert {row["commit"] for row in rows} == {"abc123"} and {row["versions"] for row in rows} == {"jax 1.2.3"}


def test_everything_is_compiled_ahead_and_waited_for_after_the_first_figure(take):
    figures = [figure("one"), figure("two"), figure("two", PEER, TORCH)]
    _, processes = take(figures)
    (_, jax), (_, torch) = processes
    assert [next(iter(request)) for request in jax.requests] == ["prepare", "measure", "wait", "measure"]
    assert [next(iter(request)) for request in torch.requests] == ["prepare", "wait", "measure"]
    assert [task["label"] for task in jax.requests[0]["prepare"]] == ["one, ours on JAX", "two, ours on JAX"]


def test_a_peer_is_told_how_many_operations_ours_has(take):
    _, processes = take([figure("one"), figure("one", PEER, TORCH)])
    assert processes[0][1].requests[1]["measure"]["operations"] == 0
    assert processes[1][1].requests[-1]["measure"]["operations"] == 7.0


def test_a_failure_is_written_and_the_next_figure_taken_by_the_same_process(take):
    results, processes = take([figure("one"), figure("two")], {"one, ours on JAX": Failed("no memory")})
    assert [row["remark"] for row in results.rows if "remark" in row] == ["failed: no memory"]
    assert measured(results) == ["two"] and len(processes) == 1


def test_a_process_that_has_ended_gets_a_successor(take):
    script = {"two, ours on JAX": Failed("died")}
    results, processes = take([figure("one"), figure("two"), figure("three")], script)
    assert measured(results) == ["one", "three"]
    assert [library for library, _ in processes] == [JAX, JAX]
    assert [task["label"] for task in processes[1][1].requests[0]["prepare"]] == ["three, ours on JAX"]


def test_what_does_not_start_is_written_and_the_others_go_on(tmp_path):
    clock, results = Clock(), Results(tmp_path, "abc123")

    def start(library):
        if library == TORCH:
            raise Failed("torch is not installed")
        return Scripted(clock, {}, tmp_path)

    runner = Runner(results, start, clock.now + 100, clock)
    runner.run([figure("one"), figure("one", PEER, TORCH), figure("two")])
    assert measured(results) == ["one", "two"]
    assert any("torch is not installed" in row.get("remark", "") for row in results.rows)


def test_it_stops_in_time(take):
    figures = [figure("one", seconds=20), figure("two", seconds=30), figure("three", seconds=10)]
    results, _ = take(figures, {"one, ours on JAX": 15.0, "three, ours on JAX": 5.0}, seconds=40)
    assert measured(results) == ["one", "three"]
    (left_out,) = (row for row in results.rows if row["figure"] == "two")
    assert "left out: 25 s" in left_out["remark"]


def test_a_process_that_does_not_answer_is_killed():
    program = "import sys, time\nfor line in sys.stdin: time.sleep(100)"
    with Process([sys.executable, "-c", program]) as process:
        with pytest.raises(Failed, match="more than 0 s"):
            process.request(0.2, measure={})
        assert process.has_ended


def test_what_a_process_says_goes_to_its_log(tmp_path):
    program = "import sys\nprint('an error', file=sys.stderr)"
    with Process([sys.executable, "-c", program], log=tmp_path / "log") as process:
        with pytest.raises(Failed, match="an error"):
            process.receive(10)
    assert (tmp_path / "log").read_text(encoding="utf-8") == "an error\n"
