"""The common command line of the measurements, and the storage of finished cases."""

import argparse
import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.case import Case
from benchmarks.environments import REQUIREMENTS
from benchmarks.measure import Result, is_complete, measure
from benchmarks.store import load_or_measure

TURNS = "turns that each time is the median of"
TINY = "**Tiny sizes: these numbers only show that it runs.**"


class MeasurementParser(argparse.ArgumentParser):
    """The parser of a measurement; `unit` describes what `--rounds` counts."""

    def __init__(self, prog: str, description: str | None, rounds: int, unit: str = TURNS):
        super().__init__(prog=prog, description=description)
        self._counts: list[str] = []
        self.add_count("rounds", rounds, unit)

    def add_count(self, name: str, default: int, text: str) -> None:
        """Adds an option that is a positive integer; its help is `text` and the default."""
        self._counts.append(name)
        self.add_argument(f"--{name}", type=int, default=default, help=f"{text} ({default:,})")

    def add_cases(self, names: Iterable[str], option: str = "case") -> None:
        """Adds the options that choose cases, tiny sizes, a fresh measurement and a file."""
        text = f"a {option}, more than once for several (all)"
        self.add_argument(f"--{option}", action="append", choices=list(names), help=text)
        self.add_argument("--fresh", action="store_true", help="measure again what runs/bench contains")
        self.add_tiny()
        self.add_output()

    def add_tiny(self) -> None:
        self.add_argument("--tiny", action="store_true", help="tiny sizes, to test that everything runs")

    def add_output(self) -> None:
        self.add_argument("--output", type=Path, help="file to write the tables into as well")

    def add_contestants(self, threads: int | None = None) -> None:
        """Adds the options that choose contestants and the number of their threads, by default that of all cores."""
        threads = threads or len(os.sched_getaffinity(0))
        self.add_argument("--contestant", action="append", default=[], help="prefix of a name, such as zoo (all)")
        self.add_count("threads", threads, "of each contestant")

    def parse_args(self, args: Sequence[str] | None = None, namespace=None):  # type: ignore[override]
        """Returns the options; ends the process where one is out of range."""
        options = super().parse_args(args, namespace)
        for name in self._counts:
            if getattr(options, name) < 1:
                self.error(f"--{name} must be positive. Received: {getattr(options, name)}")
        return options


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
        if self._output is not None:
            self._output.parent.mkdir(parents=True, exist_ok=True)
            self._output.write_text("\n\n".join(self._sections) + "\n", encoding="utf-8")
        return 0


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
