"""Spreads, targets and tables."""

import pytest

from benchmarks.runner.case import Case, Contestant, Target
from benchmarks.runner.report import (
    Column,
    Goal,
    Spread,
    case_section,
    goals,
    machine_and_commit,
    median_of,
    target_value,
)

SHORT, LONG = {"length": 16}, {"length": 64}
CASE = Case(
    "made_up",
    "made up",
    (
        Contestant("ours", "a:b", SHORT, note="two projections"),
        Contestant("theirs", "a:b", SHORT),
        Contestant("ours, T=64", "a:b", LONG),
        Contestant("absent", "a:b", SHORT),
        Contestant("unmeasured", "a:b", SHORT),
    ),
    (
        Target("speed", ("ours",), ("theirs",), 4.0),
        Target("memory", ("ours",), ("theirs",), 40.0, "memory"),
        Target("bytes", ("ours",), (), 140e6, "bytes"),
        Target("time slope", ("ours, T=64",), ("ours",), 1.15, "time slope"),
        Target("memory slope", ("ours, T=64",), ("ours",), 1.15, "memory slope"),
        Target("reported only", ("ours",), ("theirs",)),
        Target("of an absent one", ("ours",), ("absent",), 1.0),
        Target("of the fastest but one", ("ours",), ("*",), 3.0, without=("ours*",)),
    ),
)


def _result(seconds, size):
    return {"seconds": seconds, "extra_memory": [size], "versions": {"keras": "3.15.1"}}


FOUND = {
    "where": "a machine, commit abc",
    "results": {
        "ours": _result([0.08, 0.1, 0.14], 100e6),
        "theirs": _result([0.45], 3900e6),
        "ours, T=64": _result([0.4], 1600e6),
        "absent": {"failed": "a | b"},
    },
    "fastest": {},
}
COLUMNS = (
    Column("layer", lambda contestant, _: contestant.name, is_measured=False),
    Column("includes", lambda contestant, _: contestant.note, is_measured=False),
    Column("time", lambda _, result: Spread.of(result["seconds"]).text("ms", 1000)),
    Column("extra memory", lambda _, result: Spread.of(result["extra_memory"]).text("MB", 1e-6)),
)


def test_section_of_a_case():
    lines = case_section(CASE, FOUND, COLUMNS, remarks=["A remark."]).splitlines()
    for line in (
        "### made up",
        "| layer | includes | time | extra memory |",
        "|---|---|---|---|",
        "| ours | two projections | 100.0 ms (90.0–120.0) | 100.0 MB (100.0–100.0) |",
        "| absent |  | not measured: a / b |  |",
        "| unmeasured |  | not yet measured |  |",
        "| measured | found | target | |",
        "| speed | 4.50× | ≥ 4.00× | met |",
        "| memory | 1/39.0 | ≤ 1/40.0 | missed |",
        "| bytes | 100.0 MB | ≤ 140.0 MB | met |",
        "| time slope | 1.00 | ≤ 1.15 | met |",  # four times the length, four times the time
        "| memory slope | 2.00 | ≤ 1.15 | missed |",
        "| reported only | 4.50× | reported |  |",
        "| of an absent one | not yet measured | ≥ 1.00× |  |",
        "| of the fastest but one | 4.50× | ≥ 3.00× | met |",
        "A remark.",
        "a machine, commit abc. keras 3.15.1.",
    ):
        assert line in lines, line


def test_targets_across_groups_count_what_took_turns_together():
    groups = ("float32", "bfloat16")
    contestants = tuple(
        Contestant(name, "a:b", group=group) for name in ("zoo", "KerasHub", "PyTorch") for group in groups
    )
    targets = (
        Target("same precision", ("zoo, float32",), ("*, float32",), 1.3, without=("zoo,*",)),
        Target("fastest", ("zoo, *",), ("*",), 2.0, without=("zoo,*",)),
        Target("one peer", ("zoo, *",), ("KerasHub, float32",), 5.0),
        Target("nobody", ("zoo, *",), ("Marian, *",), 5.0),
    )
    seconds = {"zoo, float32": 0.4, "zoo, bfloat16": 0.1, "KerasHub, float32": 0.5, "KerasHub, bfloat16": 0.3}
    seconds["PyTorch, float32"] = 0.42
    fastest = {"zoo, bfloat16": 0.2, "KerasHub, bfloat16": 0.4, "PyTorch, float32": 0.5}
    results, fastest = ({label: {"seconds": [value]} for label, value in kind.items()} for kind in (seconds, fastest))
    case = Case("made_up", "made up", contestants, targets)
    found = {"where": "a machine", "results": results, "fastest": fastest}
    values = [target_value(case, found, target) for target in targets]
    # The third is about a precision in which the peer did not take turns with ours.
    assert values == [pytest.approx(1.05), pytest.approx(2.0), pytest.approx(5.0), None]
    assert [goal.met for goal in goals(case, found)] == [False, True, True, None]


def test_goals_spreads_and_the_machine_by_hand():
    assert str(Goal("a", "b")) == "| a | b | reported |  |"
    assert str(Goal("a", "b", "≥ 1", False)) == "| a | b | ≥ 1 | missed |"
    assert Spread.of([3.0]) == Spread(3.0, 3.0, 3.0)
    assert Spread.of([5.0, 1.0, 4.0, 2.0, 3.0]) == Spread(3.0, 2.0, 4.0)
    assert Spread(1234.56, 1.0, 2.0).text("s", digits=0) == "1,235 s (1–2)"
    assert median_of({"seconds": [1.0, 3.0, 2.0]}) == 2.0
    assert median_of({}) is median_of({"seconds": [1.0], "failed": "ended"}) is None
    assert "AMX" in machine_and_commit() and "cores, commit " in machine_and_commit()
