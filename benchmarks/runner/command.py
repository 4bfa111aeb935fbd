"""The common command line: options, reports, pages, and the storage of finished cases."""

import argparse
import dataclasses
import fnmatch
import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.runner.case import Case
from benchmarks.runner.environments import REQUIREMENTS
from benchmarks.runner.measure import Result, is_complete, measure
from benchmarks.runner.store import load_or_measure

TURNS = "turns that each time is the median of"
TINY = "**Tiny sizes: these numbers only show that it runs.**"


Item = TypeVar("Item")


class CommandParser(argparse.ArgumentParser):
    """The parser of `python -m benchmarks.NAME`."""

    def __init__(self, name: str, description: str | None):
        super().__init__(prog=f"python -m benchmarks.{name}", description=description)
        self._counts: list[str] = []

    def add_count(self, name: str, default: int | None, text: str) -> None:
        """Adds an option that is a positive integer; its help is `text` and the default."""
        self._counts.append(name)
        text += "" if default is None else f" ({default:,})"
        self.add_argument(f"--{name}", type=int, metavar="N", default=default, help=text)

    def add_fresh(self) -> None:
        self.add_argument("--fresh", action="store_true", help="measure again what runs/bench contains")

    def add_tiny(self) -> None:
        self.add_argument("--tiny", action="store_true", help="tiny sizes, to test that everything runs")

    def add_output(self, text: str = "file to write the tables into as well") -> None:
        self.add_argument("--output", type=Path, help=text)

    def parse_args(self, args: Sequence[str] | None = None, namespace=None):  # type: ignore[override]
        """Returns the options; exits with 2 if one is out of range."""
        options = super().parse_args(args, namespace)
        for name in self._counts:
            if (count := getattr(options, name)) is not None and count < 1:
                self.error(f"--{name} must be positive. Received: {count}")
        return options

    def require(self, *packages: str) -> None:
        """Exits with 2 if a package is not installed."""
        for package in packages:
            if importlib.util.find_spec(package) is None:
                self.error(f"{package} is required, but not installed: pip install {package}")

    def choose(self, option: str, pattern: str, items: Iterable[Item], name: Callable[[Item], str]) -> list[Item]:
        """Returns the items whose name matches the pattern of an option; exits with 2 if there is none."""
        items = list(items)
        chosen = [item for item in items if fnmatch.fnmatchcase(name(item), pattern)]
        if not chosen:
            names = "\n".join(f"  {name(item)}" for item in items)
            self.error(f"--{option} must match one of the following. Received: --{option} {pattern!r}\n{names}")
        return chosen


class MeasurementParser(CommandParser):
    """The parser of a command whose contestants take turns; `unit` describes what `--rounds` counts."""

    def __init__(self, name: str, description: str | None, rounds: int, unit: str = TURNS):
        super().__init__(name, description)
        self.add_count("rounds", rounds, unit)

    def add_cases(self, names: Iterable[str], option: str = "case") -> None:
        """Adds the options that choose cases, tiny sizes, a fresh measurement and a file."""
        text = f"a {option}, more than once for several (all)"
        self.add_argument(f"--{option}", action="append", choices=list(names), help=text)
        self.add_fresh()
        self.add_tiny()
        self.add_output()

    def add_contestants(self, threads: int | None = None) -> None:
        """Adds the options that choose contestants and the number of their threads (the number of cores)."""
        threads = threads or len(os.sched_getaffinity(0))
        self.add_argument("--contestant", action="append", default=[], help="prefix of a name, such as zoo (all)")
        self.add_count("threads", threads, "of each contestant")


class Report:
    """Prints sections as they are finished, and writes them into a file at the end."""

    def __init__(self, options: argparse.Namespace):
        self._output, self._tiny = options.output, options.tiny
        self._sections: list[str] = []

    def begin(self, method: str) -> None:
        """Prints the method, which all sections have in common."""
        self.add(f"{method}\n\n{TINY}" if self._tiny else method)

    def add(self, section: str) -> None:
        print(f"\n{section}" if self._sections else section, flush=True)
        self._sections.append(section)

    def end(self) -> int:
        """Writes the file; returns the exit status."""
        write("\n\n".join(self._sections) + "\n", self._output)
        return 0


def write(text: str, output: Path | None) -> None:
    """Writes a text into a file, if there is one, and creates its folder."""
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")


def write_page(text: str, output: Path | None) -> None:
    """Prints a text, and writes it into a file, if there is one."""
    print(text, end="")
    write(text, output)


def load_or_measure_case(
    subject: str,
    case: Case,
    options: argparse.Namespace,
    measure_case: Callable[..., Result] = measure,
    contestants: Sequence[str] = (),
    **settings: Any,
) -> Result:
    """Returns the measurements of a case, which are loaded if they are stored.

    Args:
        subject: The folder of its file.
        case: The case.
        options: `fresh` and `tiny` of the command line.
        measure_case: Function from the case and the settings to the measurements.
        contestants: The prefixes of the labels of its contestants, which are part of the name of the file.
        settings: Further arguments of `measure_case`.
    """
    settings["tiny"] = options.tiny
    name = "-".join([f"{subject}/{case.name}", *(re.sub(r"\W+", "_", prefix) for prefix in contestants)])
    depends_on: Mapping[str, Any] = {**settings, "case": dataclasses.asdict(case), "pins": REQUIREMENTS}
    return load_or_measure(name, depends_on, lambda: measure_case(case, **settings), options.fresh, is_complete)
