"""The fault table: what a case is and may use, how cases are run, and the page."""

import contextlib
import datetime
import itertools
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.runner.report import machine_and_commit, table

TITLE = "# What was tried, and what held"
QUICK = 10  # times fewer tries, in as many times less time


class Attempt(NamedTuple):
    """One try: whether the promise held, and a description for the report of broken promises."""

    held: bool
    story: str
    times: int = 1  # how often it counts
    measurement: str = ""  # for the table


@dataclass
class Stage:
    """The resources of a case: its own folder and random generator, and the limits on its tries and seconds.

    The folder `shared` is filled by the first case that needs its contents. All cases end by `deadline`.
    """

    folder: Path
    chance: random.Random
    tries: int
    seconds: float
    shared: Path
    deadline: float  # of `time.monotonic`

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Restarts the clock, once the target of the fault is running."""
        self.end = min(self.deadline, time.monotonic() + self.seconds)

    def left(self) -> float:
        """Returns the remaining seconds, at least one."""
        return max(1.0, self.end - time.monotonic())


@dataclass(frozen=True)
class Case:
    """A row of the table: what is tried, what must hold, and the limits on tries and seconds."""

    tried: str
    promise: str
    attempts: Callable[[Stage], Iterator[Attempt]]
    tries: int
    seconds: float


@dataclass(frozen=True)
class Row:
    """The attempts of a case."""

    case: Case
    attempts: Sequence[Attempt]
    seconds: float

    @property
    def failures(self) -> list[str]:
        """The stories of the attempts whose promise did not hold."""
        return [attempt.story for attempt in self.attempts if not attempt.held]

    def has_held(self) -> bool:
        """Returns whether the case was tried and its promise always held."""
        return any(attempt.times for attempt in self.attempts) and not self.failures

    def cells(self) -> list[str]:
        """Returns the row of the table."""
        tried = sum(attempt.times for attempt in self.attempts)
        held = sum(attempt.times for attempt in self.attempts if attempt.held)
        measurement = next((attempt.measurement for attempt in reversed(self.attempts) if attempt.measurement), "")
        verdict = "all" if self.has_held() else f"**{held:,}**"
        return [self.case.tried, f"{tried:,}", verdict, self.case.promise, measurement, f"{self.seconds:.0f} s"]


def run_cases(cases: Iterable[Case], seed: int, quick: bool, seconds: float) -> list[Row]:
    """Runs cases one after the other while there is time, and prints their progress to standard error."""
    end, rows = time.monotonic() + seconds, []
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        for case in cases:
            if time.monotonic() > end:
                print(f"not run, as no time is left: {case.tried}", file=sys.stderr)
                continue
            print(f"{case.tried} …", file=sys.stderr, flush=True)
            rows.append(_run(case, Path(folder), seed, quick, end))
            for story in rows[-1].failures:
                print(f"  did not hold: {story[-3000:]}", file=sys.stderr, flush=True)
    return rows


def _run(case: Case, shared: Path, seed: int, quick: bool, deadline: float) -> Row:
    began, attempts = time.monotonic(), []
    tries, seconds = (-(-case.tries // QUICK), case.seconds / QUICK) if quick else (case.tries, case.seconds)
    with tempfile.TemporaryDirectory(dir=shared, ignore_cleanup_errors=True) as folder:
        chance = random.Random(f"{seed} {case.tried}")
        stage = Stage(Path(folder), chance, tries, seconds, shared, deadline)
        try:
            with contextlib.closing(case.attempts(stage)) as generator:  # type: ignore[type-var]
                for attempt in itertools.islice(generator, tries):
                    attempts.append(attempt)
                    if time.monotonic() > stage.end:
                        break
        except Exception:  # an error of the case itself counts as a promise that did not hold
            attempts.append(Attempt(False, traceback.format_exc()))
    return Row(case, attempts, time.monotonic() - began)


def markdown(rows: Sequence[Row], command: str) -> str:
    """Returns the page: the command, machine and date, the table, and what did not hold."""
    lines = table(["tried", "how often", "held", "what must hold", "observed", "took"], [row.cells() for row in rows])
    failed = [row for row in rows if not row.has_held()]
    for row in failed:
        stories = row.failures or ["It was never tried."]
        lines += ["", f"What did not hold, {row.case.tried}:", ""]
        lines += [f"- {' '.join(story.split())[:300]}" for story in stories[:5]]
    where = f"{machine_and_commit()}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}."
    intro = f"Written by `{command}`. {where} The promises are in `SECURITY.md` and `docs/reliability.md`."
    return "\n".join([TITLE, "", intro, "", *lines, ""])
