"""What a case of the fault table is, and what it may use."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Attempt(NamedTuple):
    """One try: whether the promise held, and how it was tried and what came of it, for the case that it did not."""

    held: bool
    story: str
    times: int = 1  # how often it counts
    seen: str = ""  # a measurement for the table


@dataclass
class Stage:
    """Where a case plays: its own folder, its own chance, and how often and how many seconds it may try.

    What `shared` holds is made by the first case that needs it. All cases are to end by `deadline`.
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
        """Starts the clock anew, once what is attacked stands."""
        self.end = min(self.deadline, time.monotonic() + self.seconds)

    def left(self) -> float:
        """Returns the seconds that are left, never less than one."""
        return max(1.0, self.end - time.monotonic())


@dataclass(frozen=True)
class Case:
    """A row of the table: what is tried, at most how often and for how many seconds, and what must hold."""

    tried: str
    promise: str
    attempts: Callable[[Stage], Iterator[Attempt]]
    tries: int
    seconds: float
