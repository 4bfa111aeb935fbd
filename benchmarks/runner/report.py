"""Measurements as Markdown: spreads, targets, tables, machine and commit."""

import math
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.runner.case import Case, Contestant, Target
from benchmarks.runner.process import ROOT
from zoo.runtime.cores import available_cores, processor

Result = Mapping[str, Any]
_RATIOS = ("speed", "processor", "memory")  # kinds of targets that are better the larger they are


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of several measurements."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Returns the spread of one or more measurements."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def text(self, unit: str = "", scale: float = 1.0, digits: int = 1) -> str:
        """Returns the median with its unit, and the quartiles, of the values times `scale`."""
        median, low, high = (f"{scale * value:,.{digits}f}" for value in (self.median, self.low, self.high))
        return f"{' '.join(filter(None, [median, unit]))} ({low}–{high})"


@dataclass(frozen=True)
class Goal:
    """A measured value and its target, as texts."""

    what: str
    value: str
    target: str = "reported"  # "reported" without a target
    met: bool | None = None  # `None` without a target or a measurement

    def __str__(self) -> str:
        """Returns the row of a table."""
        verdict = {None: "", True: "met", False: "missed"}[self.met]
        return f"| {self.what} | {self.value} | {self.target} | {verdict} |"


@dataclass(frozen=True)
class Column:
    """A column of a table of contestants."""

    title: str
    cell: Callable[[Contestant, Result], str]  # from a contestant and its result to the text of the cell
    is_measured: bool = True  # whether it is empty for a contestant without measurements

    @classmethod
    def of(cls, field: str, title: str) -> "Column":
        """Returns the column of a field of contestants, such as `"name"`."""
        return cls(title, lambda contestant, _: str(getattr(contestant, field)), is_measured=False)

    @classmethod
    def seconds(cls, title: str, unit: str = "ms", scale: float = 1000.0, digits: int = 1) -> "Column":
        """Returns the column of the time of a turn, with its quartiles."""
        return cls(title, lambda _, result: Spread.of(result["seconds"]).text(unit, scale, digits))


def table(titles: Iterable[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a table."""
    titles = list(titles)
    return [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def goal_table(title: str, goals: Iterable[Goal]) -> list[str]:
    """Returns the lines of a table of goals."""
    return [f"| {title} | found | target | |", "|---|---|---|---|", *map(str, goals)]


def contestant_table(case: Case, results: Result, columns: Sequence[Column]) -> list[str]:
    """Returns the lines of a table with a row for each contestant: its measurements, or why there are none."""

    def row(contestant: Contestant) -> list[str]:
        result = results.get(contestant.label)
        if result and result.get("seconds") and "failed" not in result:
            return [column.cell(contestant, result) for column in columns]
        reason = f"not measured: {result['failed'].replace('|', '/')}" if result else "not yet measured"
        reasons = iter([reason])
        return [next(reasons, "") if column.is_measured else column.cell(contestant, {}) for column in columns]

    return table((column.title for column in columns), map(row, case.contestants))


def target_value(case: Case, measurements: Result, target: Target) -> float | None:
    """Returns the number of a target, or `None` if it was not measured.

    A target across several groups uses the measurements in which these took turns with one another, if there are any.
    """
    labels = [contestant.label for contestant in case.contestants]
    ours, peers = ([label for label in labels if counts(label)] for counts in (target.is_contestant, target.is_peer))
    groups = {case.contestant(label).group for label in [*ours, *peers]}
    kind = {"speed": "seconds", "time slope": "seconds", "processor": "processor"}.get(target.kind, "extra_memory")
    for results in ([measurements["fastest"]] if len(groups) > 1 else []) + [measurements["results"]]:
        best, best_peer = (best_median(results, chosen, kind) for chosen in (ours, peers))
        if best is not None and target.kind == "bytes":
            return best
        if best is None or best_peer is None:
            continue
        if target.kind in _RATIOS:
            return best_peer / max(best, 1e-9)
        longer, shorter = (case.contestant(label).work["length"] for label in (ours[0], peers[0]))
        return math.log(max(best, 1e-9) / max(best_peer, 1e-9)) / math.log(longer / shorter)
    return None


def best_median(results: Result, labels: Iterable[str], kind: str = "seconds") -> float | None:
    """Returns the smallest median of the contestants; `None` if none was measured."""
    medians = [median_of(results.get(label, {}), kind) for label in labels]
    return min((median for median in medians if median is not None), default=None)


def median_of(result: Result, kind: str = "seconds") -> float | None:
    """Returns the median of a contestant's measurements, `None` for one that was not measured or failed."""
    return Spread.of(result[kind]).median if result.get(kind) and "failed" not in result else None


def goals(case: Case, measurements: Result) -> list[Goal]:
    """Returns the goals of the targets of a case."""
    return [_goal(target, target_value(case, measurements, target)) for target in case.targets]


def _goal(target: Target, value: float | None) -> Goal:
    # A memory of 1/40 is a ratio of 40, so that larger is better, like speed.
    written = {"speed": "{:.2f}×", "processor": "{:.2f}×", "memory": "1/{:.1f}", "bytes": "{:,.1f} MB"}.get(
        target.kind, "{:.2f}"
    )
    unit = 1e6 if target.kind == "bytes" else 1.0

    def text(number: float) -> str:
        return written.format(number / unit)

    goal = "reported"
    if target.bound is not None:
        goal = f"{'≥' if written.endswith('×') else '≤'} {text(target.bound)}"
    if value is None:
        return Goal(target.what, "not yet measured", goal)
    met = None
    if target.bound is not None:
        met = value >= target.bound if target.kind in _RATIOS else value <= target.bound
    return Goal(target.what, text(value), goal, met)


def case_section(
    case: Case,
    measurements: Result,
    columns: Sequence[Column],
    goal_title: str = "measured",
    remarks: Sequence[str] = (),
) -> str:
    """Returns the measurements of a case: contestants, targets, remarks, machine and versions."""
    versions = dict.fromkeys(measurements.get("versions", []))
    for result in measurements["results"].values():
        versions |= {f"{name} {version}": None for name, version in result.get("versions", {}).items()}
    lines = [f"### {case.title}", "", *contestant_table(case, measurements["results"], columns)]
    if case.targets:
        lines += ["", *goal_table(goal_title, goals(case, measurements))]
    foot = " ".join([f"{measurements['where']}.", *([f"{', '.join(versions)}."] if versions else [])])
    return "\n".join([*lines, *(line for remark in remarks for line in ("", remark)), "", foot])


def machine_and_commit() -> str:
    """Returns the processor, its cores, the commit and the load average."""
    model = processor("model name") or platform.processor() or platform.machine()
    amx = "with" if "amx_bf16" in processor("flags") else "without"
    return f"{model} {amx} AMX, {available_cores()} cores, commit {commit()}, load average {os.getloadavg()[0]:.1f}"


def commit(checkout: Path = ROOT) -> str:
    """Returns the commit of a checkout, and whether its code has changed since; `"unknown"` without git."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=checkout).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=all", "--", "zoo", "training", "export", "benchmarks")
        return (git("rev-parse", "--short", "HEAD") or "unknown") + (" with changes" if changed else "")
    except OSError:  # no git
        return "unknown"
