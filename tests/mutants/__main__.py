"""Plants each fault, runs the tests that must notice it, and reports which fault no test noticed.

`python -m tests.mutants [AREA ...] [--only TEXT] [--first] [--jobs N]`. Each fault is planted in a process of its own,
forked from one that has imported the libraries but nothing of this project.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutants.catalog import MUTANTS
from tests.mutants.mutant import ROOT, Mutant

LIMIT = 600  # seconds: a fault that makes a loop endless is noticed as well


class _Outcomes:
    """Writes the outcome of each test as soon as it is known."""

    def __init__(self, path: Path):
        self.file = path.open("w", encoding="utf-8")

    def _write(self, name: str, outcome: str) -> None:
        self.file.write(json.dumps([name, outcome]) + "\n")
        self.file.flush()

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self._write(report.nodeid, report.outcome)

    def pytest_collectreport(self, report):
        if report.failed:
            self._write(report.nodeid, "not collected")


def _run_tests(mutant: Mutant | None, tests: list[str], folder: Path, first: bool) -> None:
    """Runs tests in this process, which is a forked one, and ends it."""
    os.setsid()
    with (folder / "output.txt").open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    if mutant is not None:
        mutant.plant()
        os.environ["ATTENTION_ZOO_MUTANT"] = mutant.name
    options = ["-q", "-p", "no:xdist", "--durations=0", f"--basetemp={folder / 'tmp'}", *(["-x"] if first else [])]
    status = pytest.main([*options, *tests], plugins=[_Outcomes(folder / "outcomes.jsonl")])
    sys.stdout.flush()
    os._exit(int(status))


def _outcomes(folder: Path) -> dict[str, str]:
    lines = (folder / "outcomes.jsonl").read_text(encoding="utf-8").splitlines()
    found: dict[str, str] = {}
    for name, outcome in map(json.loads, lines):  # a failure of a fixture's end does not hide behind a test that passed
        found[name] = outcome if found.get(name, "passed") == "passed" else found[name]
    return found


class _Runs:
    """Runs of tests in forked processes, some at once."""

    def __init__(self, folder: Path, jobs: int, first: bool, report: Callable[[str, dict[str, str], float], None]):
        self.folder, self.jobs, self.first, self.report = folder, jobs, first, report
        self.running: dict[int, tuple[str, float]] = {}
        self.ended: dict[str, tuple[dict[str, str], float]] = {}

    def start(self, key: str, mutant: Mutant | None, tests: list[str]) -> None:
        while len(self.running) >= self.jobs:
            self.wait_for_one()
        folder = self.folder / key
        folder.mkdir()
        process = os.fork()
        if not process:
            try:
                _run_tests(mutant, tests, folder, self.first and mutant is not None)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(70)
        self.running[process] = key, time.monotonic()

    def wait_for_one(self) -> None:
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process:
                break
            for late, (_, begun) in self.running.items():
                if time.monotonic() - begun > LIMIT:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(late, signal.SIGKILL)
            time.sleep(0.05)
        key, begun = self.running.pop(process)
        seconds = time.monotonic() - begun
        outcomes = _outcomes(self.folder / key)
        if os.WIFSIGNALED(status):
            outcomes["(the whole run)"] = f"ended by signal {os.WTERMSIG(status)}"
        elif os.WEXITSTATUS(status) not in (0, 1):
            outcomes["(the whole run)"] = f"pytest ended with {os.WEXITSTATUS(status)}"
        self.ended[key] = outcomes, seconds
        self.report(key, outcomes, seconds)

    def wait(self) -> None:
        while self.running:
            self.wait_for_one()


def _import_libraries() -> None:
    """Imports what takes long and is not of this project, so that each fault costs seconds less."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import grpc  # noqa: F401
    import keras  # noqa: F401
    import numpy.testing  # noqa: F401
    import sacrebleu  # noqa: F401
    import tensorflow  # noqa: F401
    import tensorflow_text  # noqa: F401


def _verdict(mutant: Mutant, outcomes: dict[str, str], seconds: float) -> tuple[bool, str]:
    """Returns whether the fault was noticed as it should be, and a line about it."""
    failed = [name for name, outcome in outcomes.items() if outcome == "failed"]
    if any(outcome == "not collected" for outcome in outcomes.values()):
        return False, f"NOT RUN   {mutant.name}: with it a test file cannot be imported"
    if failed:
        return True, f"noticed   {mutant.name} ({len(failed)} of {len(outcomes)} tests, {seconds:.0f} s): {failed[0]}"
    for name, outcome in outcomes.items():
        if outcome.startswith("ended by"):
            return True, f"noticed   {mutant.name}: {name} {outcome}"
        if outcome.startswith("pytest ended"):
            return False, f"NOT RUN   {mutant.name}: {outcome}"
    return False, f"UNNOTICED {mutant.name}: {len(outcomes)} tests passed, {seconds:.0f} s"


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"of {', '.join(MUTANTS)}; default: all")
    parser.add_argument("--only", default="", metavar="TEXT", help="faults with this text in their name")
    parser.add_argument("--first", action="store_true", help="stop each run at the first test that notices the fault")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at once")
    parser.add_argument("--keep", type=Path, help="a new folder for outputs and outcomes")
    arguments = parser.parse_args(argv)
    if unknown := {*arguments.areas} - {*MUTANTS}:
        parser.error(f"no such area: {', '.join(sorted(unknown))}")
    chosen = {
        f"{area}-{number}": mutant
        for area, mutants in MUTANTS.items()
        if not arguments.areas or area in arguments.areas
        for number, mutant in enumerate(mutants)
        if arguments.only in mutant.name
    }
    for mutant in chosen.values():
        mutant.source()
    os.chdir(ROOT)
    _import_libraries()
    noticed: set[str] = set()
    seen_by: set[str] = set()

    def report(key: str, outcomes: dict[str, str], seconds: float) -> None:
        """Prints the verdict on a fault as soon as it is known."""
        if (mutant := chosen.get(key)) is None:
            return print(f"without a fault: {dict(Counter(outcomes.values()))}, {seconds:.0f} s", flush=True)
        good, line = _verdict(mutant, outcomes, seconds)
        noticed.update([key] if good else [])
        seen_by.update(name for name, outcome in outcomes.items() if outcome == "failed")
        print(line, flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        runs = _Runs(folder, arguments.jobs, arguments.first, report)
        tests = list(dict.fromkeys(test for mutant in chosen.values() for test in mutant.tests))
        runs.start("sound", None, tests)
        runs.wait()  # it fills the cache of trained models and exports
        sound, _ = runs.ended["sound"]
        if bad := [name for name, outcome in sound.items() if outcome not in ("passed", "skipped")]:
            print("These tests fail without any fault:", *bad, sep="\n  ")
            return 1
        for key, mutant in chosen.items():
            runs.start(key, mutant, list(mutant.tests))
        runs.wait()
    blind = Counter(name.partition("::")[0] for name in sound if name not in seen_by)
    if not arguments.first:
        print("\nTests that noticed none of these faults, by file:")
        print(*(f"  {count:4} {file}" for file, count in sorted(blind.items())), sep="\n")
    print(f"\n{len(noticed)} of {len(chosen)} faults noticed")
    for key in chosen.keys() - noticed:
        print(f"not noticed: {chosen[key].name}")
    return int(len(noticed) < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
