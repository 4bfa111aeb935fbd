"""Steps of training beside the peers: cases, worker processes, tables."""

import ast
import dataclasses
import sys
from pathlib import Path

import pytest

from benchmarks import kept as keeping
from benchmarks.peers import REQUIREMENTS
from benchmarks.process import Failed
from benchmarks.training import __main__ as command
from benchmarks.training import cases, measure, report
from benchmarks.training.cases import CASES, PRECISIONS, Case, Contestant, Target

PEERS = Path(cases.__file__).parent / "peers"
PROJECT = ("zoo", "training", "export", "benchmarks")

STUB = f"""
import sys
sys.path.insert(0, {str(PEERS)!r})
from worker import Turns

turns = Turns()
kind, steps = sys.argv[0], iter([2.0, 1.5, 1.25, 1.0])
if turns.task["kind"] == "missing":
    raise ImportError("there is no such library")
print("noise that a library prints")
def step(source, target, outputs):
    assert source.shape[1:] == (3,) and target.shape == outputs.shape
    if turns.task["kind"] == "dying" and (value := next(steps)) == 1.5:
        raise MemoryError("none left")
    return 0.5
turns.serve(step, 7, ["numpy"])
"""


def _case(kinds):
    contestants = tuple(Contestant(kind, "stub", options={"kind": kind}) for kind in kinds)
    sizes = {"batch": 2, "source_length": 3, "target_length": 5, "vocabulary": 9}
    return Case("made_up", "made up", sizes, contestants, (Target("float32", PRECISIONS, PRECISIONS, 2.0),))


def test_contestants_run_or_say_why_not(monkeypatch, tmp_path):
    stub = tmp_path / "stub.py"
    stub.write_text(STUB, encoding="utf-8")

    def made(contestant):
        if contestant.name == "unmade":
            raise Failed("pip install nothing==0: ERROR: No matching distribution")
        return [sys.executable, str(stub)]

    monkeypatch.setattr(Contestant, "command", made)
    case = _case(("zoo", "missing", "unmade", "dying"))
    found = measure.measure(case, rounds=3)
    results = {label.partition(",")[0]: result for label, result in found["contestants"].items()}
    ours = results["zoo"]
    for times in (ours["seconds"], ours["processor"]):
        assert len(times) == 3 and all(0 <= seconds < 1 for seconds in times)
    assert ours["parameters"] == 7 and list(ours["versions"]) == ["numpy"] and ours["losses"] == [0.5, 0.5]
    assert 5e6 < ours["peak"] < 500e6
    assert results["missing"]["failed"] == "ended with status 1: ImportError: there is no such library"
    assert results["unmade"]["failed"].startswith("pip install nothing==0")
    assert results["dying"]["failed"] == "ended with status 1: MemoryError: none left"
    (again,) = found["fastest"].values()
    assert len(again["seconds"]) == 3 and "failed" not in again
    text = report.table(case, found)
    assert "In turns with one another, each at its fastest precision: zoo, float32 " in text
    assert "| missing | float32 | not measured: ended with status 1: ImportError" in text
    assert "| dying | float32 | not measured" in text and "numpy" in text


def _found():
    seconds = {
        "zoo, float32": 0.4,
        "zoo, bfloat16": 0.1,
        "KerasHub, float32": 0.5,
        "KerasHub, bfloat16": 0.3,
        "PyTorch, float32": 0.42,
    }
    result = {"peak": 2e9, "parameters": 2_605_568, "versions": {"keras": "3.15.1"}}
    contestants = {label: {**result, "seconds": [value], "processor": [2 * value]} for label, value in seconds.items()}
    contestants["broken, float32"] = {"seconds": [0.001], "failed": "ended"}
    together = {"zoo, bfloat16": 0.2, "KerasHub, bfloat16": 0.4, "PyTorch, float32": 0.5}
    fastest = {label: {"seconds": [value]} for label, value in together.items()}
    return {"where": "a machine", "contestants": contestants, "fastest": fastest}


def test_table_and_ratios():
    names = ("zoo", "KerasHub", "PyTorch", "broken")
    contestants = tuple(
        Contestant(name, "stub", precision=precision, note="as all") for name in names for precision in PRECISIONS
    )
    targets = (
        Target("same precision", ("float32",), ("float32",), 1.3),
        Target("fastest", PRECISIONS, PRECISIONS, 2.0),
        Target("one peer", PRECISIONS, ("float32",), 5.0, "KerasHub"),
        Target("nobody", PRECISIONS, PRECISIONS, 5.0, "Marian"),
    )
    case = Case("made_up", "made up", {"batch": 4, "target_length": 10}, contestants, targets)
    lines = report.table(case, _found()).splitlines()
    for line in (
        "### made up",
        "| zoo | float32 | 400.0 ms (400.0–400.0) | 800.0 ms | 100 | 2,000 MB | 2,605,568 | as all |",
        "| PyTorch | bfloat16 | not yet measured |  |  |  |  | as all |",
        "| broken | float32 | not measured: ended |  |  |  |  | as all |",
        "| same precision | 1.05× | ≥ 1.3× | missed |",
        "| fastest | 2.00× | ≥ 2.0× | met |",
        "| one peer | 5.00× | ≥ 5.0× | met |",  # in a precision that is not its fastest
        "| nobody | not yet measured | ≥ 5.0× | |",
        "In turns with one another, each at its fastest precision: "
        "zoo, bfloat16 200.0 ms, KerasHub, bfloat16 400.0 ms, PyTorch, float32 500.0 ms.",
        "a machine. keras 3.15.1.",
    ):
        assert line in lines, line


def test_epochs_are_not_measured_twice(monkeypatch):
    asked = []
    monkeypatch.setattr(measure, "_in_turns", lambda case, group, what, *rest: asked.append(what) or {})
    case = _case(("zoo",))
    measure.measure(dataclasses.replace(case, turn="epoch"))
    assert asked == list(PRECISIONS)


def test_each_contestant_counts_in_its_fastest_precision():
    contestants = tuple(
        Contestant(name, "stub", precision=each) for name in ("zoo", "KerasHub", "broken") for each in PRECISIONS
    )
    case = Case("made_up", "made up", {}, contestants, ())
    group = measure.fastest_of_each(case, _found()["contestants"])
    assert [contestant.label for contestant in group] == ["zoo, bfloat16", "KerasHub, bfloat16"]


def test_targets_are_those_of_the_issue():
    bounds = {(name, target.what): target.bound for name, case in CASES.items() for target in case.targets}
    assert bounds[("transformer_step", "float32")] == 1.3
    assert bounds[("transformer_step", "each at its fastest precision")] == 2.0
    assert bounds[("wide_step", "fastest precision against KerasHub in mixed_bfloat16")] == 2.5
    for name in ("rnnsearch_step", "luong_step"):
        assert bounds[(name, "float32")] == bounds[(name, "each at its fastest precision")] == 2.0


def test_contestants_have_a_module_and_an_environment():
    for case in CASES.values():
        labels = [contestant.label for contestant in case.contestants]
        assert len(set(labels)) == len(labels)
        for contestant in case.contestants:
            if contestant.name != cases.OURS:
                assert (PEERS / f"{contestant.module}.py").is_file() and contestant.peer in REQUIREMENTS
            task = case.task_of(contestant, threads=3, tiny=True)
            assert task["threads"] == 3 and task["precision"] == contestant.precision and task["batch"] == 2


def test_some_of_the_contestants():
    case = CASES["wide_step"]
    assert case.among([]) == case
    labels = [contestant.label for contestant in case.among(["zoo, b", "KerasHub"]).contestants]
    assert labels == ["zoo, bfloat16", "KerasHub, float32", "KerasHub, bfloat16"]


def test_peers_import_nothing_of_this_project():
    for file in PEERS.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or "."] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] in (*PROJECT, "")], file


def test_command(monkeypatch, tmp_path, capsys):
    given = []

    def measured(case, rounds, threads, tiny):
        given.append((case.name, rounds, threads, tiny))
        return {"where": "a machine", "contestants": {}, "fastest": {}}

    monkeypatch.setattr(keeping, "FOLDER", tmp_path)
    monkeypatch.setattr(measure, "measure", measured)
    arguments = ["--case", "wide_step", "--rounds", "3", "--threads", "1", "--tiny"]
    assert command.main(arguments) == command.main(arguments) == 0
    assert given == [("wide_step", 3, 1, True)], "the second time it is kept"
    assert command.main([*arguments, "--contestant", "zoo, f", "--contestant", "Ke"]) == 0
    assert len(given) == 2, "other contestants are another run"
    out = capsys.readouterr().out
    assert "Median of 3 turns" in out and "1 threads each" in out and "D 256" in out and "Tiny sizes" in out


@pytest.mark.parametrize("arguments", [["--case", "nothing"], ["--rounds", "0"], ["--threads", "-1"]])
def test_command_with_bad_arguments(arguments, capsys):
    with pytest.raises(SystemExit) as error:
        command.main(arguments)
    assert error.value.code == 2
    assert arguments[1] in capsys.readouterr().err
