"""Attention layers beside their peers, forward and backward: time and memory of each in a process of its own."""

import dataclasses
import functools
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.arguments import MeasurementParser
from benchmarks.cases import CASES, Case, Contestant, Target
from benchmarks.kept import kept
from benchmarks.process import Failed, Process, until_failure
from benchmarks.timing import Spread, take_turns, where


class Worker(Process):
    """A process that measures one contestant, to be closed.

    Args:
        case: Its case.
        contestant: The contestant.
        tiny: Whether sizes are tiny.
    """

    def __init__(self, case: Case, contestant: Contestant, tiny: bool = False):
        environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": contestant.backend}
        if contestant.backend == "tensorflow":
            environment["CUDA_VISIBLE_DEVICES"] = "-1"  # these cases are about processors
        command = [sys.executable, "-m", "benchmarks.worker", case.name, contestant.name]
        super().__init__([*command, "--tiny"] if tiny else command, environment)

    def extra_memory(self) -> int:
        """Returns the bytes that the pass grows the process by; to be asked once, first."""
        return self.answer()["extra_memory"]

    def seconds(self) -> float:
        """Returns the time of one pass."""
        self.tell("run")
        return self.answer()["seconds"]


class Found:
    """What was measured of a case.

    Args:
        case: The case.
        place: Machine and commit.
    """

    def __init__(self, case: Case, place: str = ""):
        self.case, self.where = case, place
        self.memory: dict[str, Spread] = {}
        self.time: dict[str, Spread] = {}
        self.failed: dict[str, str] = {}

    def to_json(self) -> dict[str, Any]:
        """Returns the measurements as plain data."""
        spreads = {
            kind: {name: dataclasses.asdict(spread) for name, spread in getattr(self, kind).items()}
            for kind in ("memory", "time")
        }
        return {"where": self.where, "failed": self.failed, **spreads}

    @classmethod
    def from_json(cls, case: Case, values: Mapping[str, Any]) -> "Found":
        """Returns measurements from what `to_json` made of them.

        Args:
            case: Their case.
            values: The plain data.
        """
        found = cls(case, values["where"])
        found.failed = dict(values["failed"])
        for kind in ("memory", "time"):
            setattr(found, kind, {name: Spread(**spread) for name, spread in values[kind].items()})
        return found

    def value(self, target: Target) -> float | None:
        """Returns the number that a target is about, or `None` if it was not measured."""
        values = self.time if target.kind in ("speed", "time slope") else self.memory
        ours, peer = values.get(target.ours), values.get(target.peer)
        if ours is None or (peer is None and target.kind != "bytes"):
            return None
        if target.kind == "bytes":
            return ours.median
        ratio = peer.median / max(ours.median, 1e-9)
        if target.kind in ("speed", "memory"):
            return ratio
        longer, shorter = (self.case.contestant(name).sizes.length for name in (target.ours, target.peer))
        return -math.log(max(ratio, 1e-9)) / math.log(longer / shorter)


def measure(case: Case, rounds: int = 15, memory_rounds: int = 3, tiny: bool = False) -> Found:
    """Returns the measurements of a case: memory in fresh processes, then time in those started last, turn by turn.

    Args:
        case: The case.
        rounds: Turns of the time.
        memory_rounds: Processes for each contestant.
        tiny: Whether sizes are tiny, to see that everything runs.
    """
    found, workers, grown = Found(case, where()), {}, {}
    try:
        rounds_left = [contestant for _ in range(memory_rounds) for contestant in case.contestants]
        for contestant in tqdm(rounds_left, f"{case.name}: starting", leave=False, disable=None):
            if contestant.name not in found.failed:
                _restart(workers, found, grown, contestant, tiny)
        turns = {
            name: until_failure(worker.seconds, functools.partial(found.failed.__setitem__, name))
            for name, worker in workers.items()
        }
        times = take_turns(turns, rounds)
        found.time = {name: Spread.of(values) for name, values in times.items() if name not in found.failed}
    finally:
        for worker in workers.values():
            worker.close()
    found.memory = {name: Spread.of(grown[name]) for name in found.time}
    return found


def _restart(workers, found, grown, contestant, tiny):
    """Starts a contestant's process, again if there is one, and asks for its memory."""
    if contestant.name in workers:
        workers.pop(contestant.name).close()
    workers[contestant.name] = worker = Worker(found.case, contestant, tiny)
    try:
        grown.setdefault(contestant.name, []).append(worker.extra_memory())
    except Failed as error:
        found.failed[contestant.name] = str(error)
        workers.pop(contestant.name).close()


def table(found: Found) -> str:
    """Returns the measurements of a case as Markdown: each contestant, then each target."""
    rows = []
    for contestant in found.case.contestants:
        cells = [contestant.name, contestant.note]
        if contestant.name in found.failed:
            cells += [f"not measured: {found.failed[contestant.name]}", ""]
        else:
            on_gpu = contestant.backend != "tensorflow"  # where the memory is not the process's
            memory = "" if on_gpu else _spread(found.memory[contestant.name], 1e6, "MB")
            cells += [_spread(found.time[contestant.name], 1e-3, "ms"), memory]
        rows.append(f"| {' | '.join(cells)} |")
    head = ["| layer | includes | time | extra memory |", "|---|---|---|---|"]
    targets = [
        "| measured | found | target | |",
        "|---|---|---|---|",
        *(_told(found, each) for each in found.case.targets),
    ]
    return "\n".join([f"### {found.case.title}", "", *head, *rows, "", *targets, "", f"{found.where}."])


def _spread(spread, unit, name):
    low, high = (f"{value / unit:,.1f}" for value in (spread.low, spread.high))
    return f"{spread.median / unit:,.1f} {name} ({low}–{high})"


def _told(found, target):
    value = found.value(target)
    number = {
        "speed": lambda value: f"{value:.2f}×",
        "memory": lambda value: f"1/{value:.1f}",
        "bytes": lambda value: f"{value / 1e6:,.1f} MB",
        "time slope": lambda value: f"{value:.2f}",
        "memory slope": lambda value: f"{value:.2f}",
    }[target.kind]
    more = target.kind in ("speed", "memory")  # a memory of 1/40 is a ratio of 40
    sign = "≥" if target.kind == "speed" else "≤"
    wanted = "reported" if target.bound is None else f"{sign} {number(target.bound)}"
    if value is None:
        return f"| {target.what} | not yet measured | {wanted} | |"
    met = (
        ""
        if target.bound is None
        else "met"
        if (value >= target.bound if more else value <= target.bound)
        else "missed"
    )
    return f"| {target.what} | {number(value)} | {wanted} | {met} |"


def head(rounds: int, memory_rounds: int, tiny: bool) -> str:
    """Returns what the tables have in common: the method."""
    lines = [
        "Forward and backward, with the gradients of inputs and weights; TensorFlow graphs, PyTorch as it is. Time:"
        f" median of {rounds} turns A B A B (quartiles), each contestant in a process of its own. Extra memory: peak"
        f" resident set of a pass less that right before it, median of {memory_rounds} fresh processes (quartiles).",
    ]
    return "\n".join([*lines, "", "**Tiny sizes: these numbers say only that it runs.**"] if tiny else lines)


def main(arguments=None) -> int:
    """Runs the command; returns its exit status.

    Args:
        arguments: Command line without the program. Default: that of the process.
    """
    parser = MeasurementParser("python -m benchmarks.attention", __doc__, rounds=15)
    parser.add_argument("--case", action="append", choices=CASES, help="a case, more than once for several (all)")
    parser.add_argument("--output", type=Path, help="file to write the tables into as well")
    parser.add_count("memory_rounds", 3, "processes that each memory is of")
    parser.add_resuming()
    options = parser.parse_args(arguments)
    settings = {"rounds": options.rounds, "memory_rounds": options.memory_rounds, "tiny": options.tiny}
    parts = [head(options.rounds, options.memory_rounds, options.tiny)]
    print(parts[0], flush=True)
    for name in options.case or CASES:
        case = CASES[name]
        values = kept(
            f"attention/{name}", settings, lambda case=case: measure(case, **settings).to_json(), options.fresh
        )
        parts.append(table(Found.from_json(case, values)))
        print(f"\n{parts[-1]}", flush=True)
    if options.output is not None:
        options.output.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
