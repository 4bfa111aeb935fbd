"""How everything here is timed and told: turns of all contestants, medians with their spread, machine and commit."""

import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Spread:
    """What several measurements of one thing have in common.

    Args:
        median: The middle one.
        low: Where the lowest quarter ends.
        high: Where the highest quarter begins.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Returns the spread of one or more measurements."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)


def take_turns(
    contestants: Mapping[str, Callable[[], float]], rounds: int = 15, warm_up: int = 2
) -> dict[str, list[float]]:
    """Returns what each contestant measured, turn by turn: A B A B …, so that noise hits all alike.

    Args:
        contestants: Functions that measure once, by name.
        rounds: Turns that count.
        warm_up: Turns before them.
    """
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in tqdm(range(warm_up + rounds), "turns", leave=False, disable=None):
        for name, measure in contestants.items():
            value = measure()
            if turn >= warm_up:
                found[name].append(value)
    return found


def where() -> str:
    """Returns processor, cores and commit of this measurement, and how busy the machine was before it."""
    model, flags = platform.processor() or platform.machine(), ""
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            lines = dict(line.split(":", 1) for line in reversed(file.readlines()) if ":" in line)
        fields = {name.strip(): value.strip() for name, value in lines.items()}
        model, flags = fields.get("model name", model), fields.get("flags", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    amx = "with" if "amx_bf16" in flags else "without"
    return f"{model} {amx} AMX, {cores} cores, commit {_commit()}, load average {os.getloadavg()[0]:.1f}"


def _commit() -> str:
    def git(*arguments):
        return subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=ROOT).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=all", "--", "zoo", "training", "export", "benchmarks")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" with changes" if changed else "")
