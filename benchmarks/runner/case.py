"""Cases as data: contestants, their common work, and the targets of this library."""

import dataclasses
import fnmatch
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.runner.environments import python_of

ZOO = "zoo"


@dataclass(frozen=True)
class Contestant:
    """A library, a layer or a model that is compared with others."""

    name: str  # the names of this library's contestants begin with `ZOO`
    adapter: str  # the function that runs it, `MODULE:FUNCTION`; see `benchmarks.runner.worker`
    work: Mapping[str, Any] = field(default_factory=dict)  # its part of the task, added to that of the case
    environment: str = ""  # one of `benchmarks.runner.environments.REQUIREMENTS`; empty for that of this process
    group: str = ""  # contestants of one group take turns with one another: a precision, or a kind of search
    note: str = ""  # how its work differs from that of others
    variables: Mapping[str, str] = field(default_factory=dict)  # additional environment variables of its process

    @property
    def label(self) -> str:
        """Name and group."""
        return f"{self.name}, {self.group}" if self.group else self.name

    def command(self, task: Mapping[str, Any]) -> list[str]:
        """Returns the program and its arguments; creates a missing environment, or raises `Failed`."""
        python = python_of(self.environment) if self.environment else sys.executable
        return [python, "-m", "benchmarks.runner.worker", json.dumps({**task, "adapter": self.adapter})]


@dataclass(frozen=True)
class Target:
    """A goal for the best of some contestants, relative to the best of their peers."""

    what: str  # a description
    contestants: tuple[str, ...]  # patterns of the labels of ours
    peers: tuple[str, ...] = ()  # patterns of the labels of peers
    bound: float | None = None  # the number to reach; `None` if it is only reported
    # "speed", "processor" and "memory": how many times faster than the peers, by the clock or by processor time, or how
    # many times less memory; "bytes": extra memory; "time slope" and "memory slope": of the logarithm against that of
    # the length, from the peer to ours
    kind: str = "speed"
    without: tuple[str, ...] = ()  # patterns of labels that are not peers

    def is_contestant(self, label: str) -> bool:
        """Returns whether a contestant is one of ours."""
        return _matches(label, self.contestants)

    def is_peer(self, label: str) -> bool:
        """Returns whether a contestant is a peer."""
        return _matches(label, self.peers) and not _matches(label, self.without)


def in_groups(contestants: Sequence[Contestant], key: str, groups: Mapping[str, Any]) -> tuple[Contestant, ...]:
    """Returns the contestants in each group, with the value of the group as `key` of their work."""
    return tuple(
        dataclasses.replace(contestant, group=group, work={key: value, **contestant.work})
        for group, value in groups.items()
        for contestant in contestants
    )


def _matches(label: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(label, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Case:
    """Contestants on one task."""

    name: str  # for the command line
    title: str
    contestants: tuple[Contestant, ...]  # ours first
    targets: tuple[Target, ...] = ()
    work: Mapping[str, Any] = field(default_factory=dict)  # the common part of the task, such as sizes
    tiny: Mapping[str, Any] = field(default_factory=dict)  # tiny sizes, to test that everything runs
    turn: str = "step"
    warm_up: int = 2  # turns before those that are measured
    compare_fastest: bool = False  # whether contestants also take turns across groups, each in its fastest one

    @property
    def groups(self) -> list[str]:
        """The groups of its contestants, in order."""
        return list(dict.fromkeys(contestant.group for contestant in self.contestants))

    def contestant(self, label: str) -> Contestant:
        """Returns a contestant by its label."""
        return {contestant.label: contestant for contestant in self.contestants}[label]

    def among(self, prefixes: Sequence[str]) -> "Case":
        """Returns the case with the contestants whose labels begin with a prefix; no prefixes mean all contestants."""
        prefixes = tuple(prefixes) or ("",)
        return dataclasses.replace(self, contestants=tuple(c for c in self.contestants if c.label.startswith(prefixes)))

    def task(self, contestant: Contestant, threads: int = 0, tiny: bool = False) -> dict[str, Any]:
        """Returns the task of a contestant; with 0 threads its library chooses their number."""
        return {**self.work, **(self.tiny if tiny else {}), "threads": threads, **contestant.work}
