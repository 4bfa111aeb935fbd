"""Runs the checks and writes their outcomes."""

import fnmatch
import importlib.metadata
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.conformance.checks import CHECKS, Check
from benchmarks.conformance.probes import Broken
from benchmarks.conformance.subjects import SUBJECTS, Missing, NotApplicable, Subject, find
from benchmarks.runner.report import machine_and_commit, table

PASS, FAIL, NOT_APPLICABLE = "pass", "fail", "n/a"
CELLS = {PASS: "pass", FAIL: "**fail**", NOT_APPLICABLE: "–"}
PACKAGES = {"keras": "Keras", "keras-hub": "KerasHub", "tensorflow": "TensorFlow"}


@dataclass(frozen=True)
class Result:
    """The outcome of one check of one layer, and why it failed or does not apply."""

    outcome: str
    reason: str = ""


Results = Mapping[Subject, Mapping[Check, Result]]


def run_check(check: Check, subject: Subject) -> Result:
    """Returns the result of a check of a layer; an error inside the layer is a failure."""
    try:
        check.function(subject)
    except NotApplicable as error:
        return Result(NOT_APPLICABLE, str(error))
    except Broken as error:
        return Result(FAIL, str(error))
    except Exception as error:  # layers of any library may raise any error
        return Result(FAIL, f"{type(error).__name__}: {_first_line(error)}")
    return Result(PASS)


def _first_line(error: Exception) -> str:
    """Returns the message of an error, without the context that Keras adds."""
    text = re.sub(r"\x1b\[\d+m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Exception encountered when calling")] or lines or [""]
    return lines[0] if len(lines[0]) < 120 else f"{lines[0][:119]}…"


def available(subjects: Iterable[Subject]) -> tuple[list[Subject], list[str]]:
    """Returns the layers that are installed, and a line for each reason why others are not."""
    existing, missing = [], {}
    for subject in subjects:
        try:
            find(subject.path)
        except Missing as error:
            missing.setdefault(str(error), []).append(subject.name)
        else:
            existing.append(subject)
    return existing, [f"{reason}; left out: {', '.join(names)}" for reason, names in missing.items()]


def run(
    layer: str = "*", check: str = "*", progress: Callable[[str], object] = lambda line: None
) -> tuple[Results, list[str]]:
    """Returns the results by layer and check, of matching names, and lines about layers that are not installed."""
    subjects, missing = available(subject for subject in SUBJECTS if fnmatch.fnmatch(subject.name, layer))
    results = {}
    for subject in subjects:
        checks = [one for one in CHECKS if one.suits(subject) and fnmatch.fnmatch(one.name, check)]
        results[subject] = {one: run_check(one, subject) for one in checks}
        progress(f"{subject.name}: {count(results[subject])}")
    return results, missing


def count(results: Mapping[Check, Result]) -> str:
    """Returns how many of the applicable checks passed."""
    outcomes = [result.outcome for result in results.values()]
    return f"{outcomes.count(PASS)} of {len(outcomes) - outcomes.count(NOT_APPLICABLE)}"


def versions() -> str:
    """Returns the versions of the libraries, with machine and commit."""
    names = []
    for package, name in PACKAGES.items():
        try:
            names.append(f"{name} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            names.append(f"{name} not installed")
    return f"{', '.join(names)}, Python {platform.python_version()}; {machine_and_commit()}"


def _short_name(subject: Subject) -> str:
    library, _, rest = subject.name.partition(".layers.")
    return f"{ {'keras_hub': 'KerasHub', 'keras': 'Keras'}.get(library, library) } {rest}"


def _table(group: str, results: Results) -> str:
    subjects = [subject for subject in results if subject.group == group]
    checks = [check for check in CHECKS if any(check in results[subject] for subject in subjects)]
    rows = [[check.name, check.item, *(CELLS[results[one][check].outcome] for one in subjects)] for check in checks]
    rows.append(["passed of those that apply", "", *(count(results[subject]) for subject in subjects)])
    return "\n".join(table([group, "item", *map(_short_name, subjects)], rows)).replace("|  |", "| |")


def _reasons(results: Results, outcome: str) -> Iterator[str]:
    """Yields the reasons of an outcome, by layer."""
    for subject, by_check in results.items():
        reasons = [(check.name, result.reason) for check, result in by_check.items() if result.outcome == outcome]
        if reasons:
            yield f"- {_short_name(subject)}"
            yield from (f"  - {name}: {reason}" for name, reason in reasons)


def markdown(results: Results, missing: Iterable[str]) -> str:
    """Returns the tables, and the reasons of failures and of checks that do not apply; see `run`."""
    missing_lines = "\n".join(f"- {line}" for line in missing)
    sections = [f"{versions()}.", *([missing_lines] if missing_lines else [])]
    sections += [_table(group, results) for group in dict.fromkeys(subject.group for subject in results)]
    for title, outcome in (("What happened", FAIL), ("Why a check does not apply (–)", NOT_APPLICABLE)):
        if lines := list(_reasons(results, outcome)):
            sections += [f"{title}:", "\n".join(lines)]
    return "\n\n".join(sections) + "\n"
