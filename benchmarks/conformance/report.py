"""Runs the checks and writes down what came of them."""

import fnmatch
import importlib.metadata
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.conformance.checks import CHECKS, Broken, Check
from benchmarks.conformance.subjects import SUBJECTS, Missing, NotApplicable, Subject, find
from benchmarks.report import machine_and_commit
from benchmarks.report import table as table_lines

PASS, FAIL, NONE = "pass", "fail", "n/a"
PACKAGES = {"keras": "Keras", "keras-hub": "KerasHub", "tensorflow": "TensorFlow"}


@dataclass(frozen=True)
class Result:
    """What came of one check of one layer.

    Args:
        outcome: `pass`, `fail` or `n/a`.
        reason: What happened, or why there was nothing to look at.
    """

    outcome: str
    reason: str = ""


def run_check(check: Check, subject: Subject) -> Result:
    """Returns what a check says of a layer; an error inside the layer is a failure.

    Args:
        check: The check.
        subject: The layer.
    """
    try:
        check.function(subject)
    except NotApplicable as error:
        return Result(NONE, str(error))
    except Broken as error:
        return Result(FAIL, str(error))
    except Exception as error:
        return Result(FAIL, f"{type(error).__name__}: {_first_line(error)}")
    return Result(PASS)


def _first_line(error):
    """Returns what an error says, without what Keras puts around it."""
    text = re.sub(r"\x1b\[\d+m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Exception encountered when calling")] or lines or [""]
    return lines[0] if len(lines[0]) < 120 else f"{lines[0][:119]}…"


def available(subjects: Iterable[Subject]) -> tuple[list[Subject], list[str]]:
    """Returns the layers that are there, and for each other one a line that says why not.

    Args:
        subjects: Layers.
    """
    found, missing = [], {}
    for subject in subjects:
        try:
            find(subject.path)
        except Missing as error:
            missing.setdefault(str(error), []).append(subject.name)
        else:
            found.append(subject)
    return found, [f"{reason}; left out: {', '.join(names)}" for reason, names in missing.items()]


def run(layer="*", check="*", progress=lambda line: None):
    """Returns the results by layer and check, and lines about layers that are not there.

    Args:
        layer: Pattern of names of layers.
        check: Pattern of names of checks.
        progress: Called with a line for each layer.
    """
    wanted = [subject for subject in SUBJECTS if fnmatch.fnmatch(subject.name, layer)]
    subjects, missing = available(wanted)
    results = {}
    for subject in subjects:
        checks = [each for each in CHECKS if each.suits(subject) and fnmatch.fnmatch(each.name, check)]
        results[subject] = {each: run_check(each, subject) for each in checks}
        progress(f"{subject.name}: {count(results[subject])}")
    return results, missing


def count(results) -> str:
    """Returns how many of the checks passed that had something to look at."""
    outcomes = [result.outcome for result in results.values()]
    return f"{outcomes.count(PASS)} of {len(outcomes) - outcomes.count(NONE)}"


def versions() -> str:
    """Returns the versions of what was compared, with machine and commit."""
    found = []
    for package, name in PACKAGES.items():
        try:
            found.append(f"{name} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} not installed")
    return f"{', '.join(found)}, Python {platform.python_version()}; {machine_and_commit()}"


def _short(subject):
    return (
        subject.name.replace("keras_hub.layers.", "KerasHub ")
        .replace("keras.layers.", "Keras ")
        .replace("zoo.layers.", "zoo ")
    )


def _table(group, results):
    subjects = [subject for subject in results if subject.group == group]
    checks = [check for check in CHECKS if any(check in results[subject] for subject in subjects)]
    cells = {PASS: "pass", FAIL: "**fail**", NONE: "–"}
    rows = [
        [check.name, check.item, *(cells[results[subject][check].outcome] for subject in subjects)] for check in checks
    ]
    rows.append(["passed of those that apply", "", *(count(results[subject]) for subject in subjects)])
    return "\n".join(table_lines([group, "item", *map(_short, subjects)], rows)).replace("|  |", "| |")


def _reasons(results, outcome):
    """Yields what happened in each check with an outcome, by layer."""
    for subject, by_check in results.items():
        told = [(check, result) for check, result in by_check.items() if result.outcome == outcome]
        if told:
            yield f"- {_short(subject)}"
            yield from (f"  - {check.name}: {result.reason}" for check, result in told)


def markdown(results, missing) -> str:
    """Returns the tables, what happened where a check failed, and why others do not apply.

    Args:
        results: From `run`.
        missing: From `run`.
    """
    groups = dict.fromkeys(subject.group for subject in results)
    parts = [f"{versions()}."]
    if missing:
        parts.append("\n".join(f"- {line}" for line in missing))
    parts += [_table(group, results) for group in groups]
    for title, outcome in (("What happened", FAIL), ("Why a check does not apply (–)", NONE)):
        lines = list(_reasons(results, outcome))
        parts += [f"{title}:", "\n".join(lines)] if lines else []
    return "\n\n".join(parts) + "\n"
