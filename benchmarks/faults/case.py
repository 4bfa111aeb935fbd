"""The cases of the fault table: what a case is, and the resources that it uses."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Attempt(NamedTuple):
    """One try: whether the promise held, and what happened, for the report of a promise that did not."""

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
