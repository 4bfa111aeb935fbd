"""What is measured against what, as data: contestants, the work that they share, and the targets of this zoo."""

import dataclasses
import fnmatch
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.environments import python_of

ZOO = "zoo"


@dataclass(frozen=True)
class Contestant:
    """One of those that are compared."""

    name: str  # what it is; the names of this zoo's contestants begin with `ZOO`
    adapter: str  # the function that runs it, `MODULE:FUNCTION`; see `benchmarks.worker`
    work: Mapping[str, Any] = field(default_factory=dict)  # what its task has besides the case's
    environment: str = ""  # one of `benchmarks.environments.REQUIREMENTS`; empty for the one of this process
    group: str = ""  # contestants of one group take turns with one another: a precision, or a kind of search
    note: str = ""  # what it does differently, for a fair reading
    # what its process has in its environment besides that of this one
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Name and group."""
        return f"{self.name}, {self.group}" if self.group else self.name

    def command(self, task: Mapping[str, Any]) -> list[str]:
        """Returns the program and its arguments; makes a missing environment, or raises `Failed`."""
        python = python_of(self.environment) if self.environment else sys.executable
        return [python, "-m", "benchmarks.worker", json.dumps({**task, "adapter": self.adapter})]


@dataclass(frozen=True)
class Target:
    """A number to reach: what the best of some contestants measured beside the best of others."""

    what: str  # what is compared, for the reader
    contestants: tuple[str, ...]  # patterns of the labels of ours that count
    peers: tuple[str, ...] = ()  # patterns of the labels of those that they are compared with
    bound: float | None = None  # what to reach; `None` if the number is only reported
    # "speed", "processor" and "memory" (how many times faster, by the clock or by processor time, or less, than the
    # peers), "bytes" (extra memory alone), "time slope" and "memory slope" (of the logarithm against that of the
    # length, from the peer to ours)
    kind: str = "speed"
    without: tuple[str, ...] = ()  # patterns of labels that are no peers

    def is_contestant(self, label: str) -> bool:
        """Tells whether a contestant is one of ours that count."""
        return _matches(label, self.contestants)

    def is_peer(self, label: str) -> bool:
        """Tells whether a contestant is one that ours are compared with."""
        return _matches(label, self.peers) and not _matches(label, self.without)


def _matches(label: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(label, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Case:
    """Contestants on one task."""

    name: str  # for the command line
    title: str
    contestants: tuple[Contestant, ...]  # ours first
    targets: tuple[Target, ...] = ()  # what ours should reach
    work: Mapping[str, Any] = field(default_factory=dict)  # sizes and the like, which all contestants are passed
    tiny: Mapping[str, Any] = field(default_factory=dict)  # what replaces these sizes to see that everything runs
    turn: str = "step"
    warm_up: int = 2  # turns before those that count
    compare_fastest: bool = False  # whether each contestant takes turns once more in the group in which it was fastest

    @property
    def groups(self) -> list[str]:
        """The groups of its contestants, in order."""
        return list(dict.fromkeys(contestant.group for contestant in self.contestants))

    def contestant(self, label: str) -> Contestant:
        """Returns a contestant by its label."""
        return {contestant.label: contestant for contestant in self.contestants}[label]

    def among(self, beginnings: Sequence[str]) -> "Case":
        """Returns the case with those contestants whose labels begin so; with all if there is no beginning."""
        chosen = [
            contestant
            for contestant in self.contestants
            if not beginnings or contestant.label.startswith(tuple(beginnings))
        ]
        return dataclasses.replace(self, contestants=tuple(chosen))

    def task(self, contestant: Contestant, threads: int = 0, tiny: bool = False) -> dict[str, Any]:
        """Returns what is passed to a contestant; 0 threads leave the number to its library."""
        return {**self.work, **(self.tiny if tiny else {}), "threads": threads, **contestant.work}
