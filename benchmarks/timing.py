"""How everything here is timed: interleaved runs of all contestants, medians and ratios."""

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping


def interleaved(
    contestants: Mapping[str, Callable[[], object]], rounds: int = 15, warm_up: int = 2
) -> dict[str, float]:
    """Returns the median seconds of each contestant; they take turns, so that noise hits all alike.

    Args:
        contestants: Functions without arguments by name.
        rounds: Measured turns.
        warm_up: Turns before them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(warm_up + rounds):
        for name, function in contestants.items():
            begun = time.perf_counter()
            function()
            if turn >= warm_up:
                seconds[name].append(time.perf_counter() - begun)
    return {name: statistics.median(values) for name, values in seconds.items()}


def where() -> str:
    """Returns processor, cores and commit of this measurement."""
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), model)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return f"{model}, {len(os.sched_getaffinity(0))} cores, commit {commit or 'unknown'}"


def table(title: str, medians: Mapping[str, float]) -> str:
    """Returns the medians as lines of Markdown, with the ratio to the first contestant.

    Args:
        title: What was measured.
        medians: Seconds by name; ours first.
    """
    ours = next(iter(medians.values()))
    rows = [f"| {name} | {seconds * 1e3:.1f} ms | {seconds / ours:.2f} |" for name, seconds in medians.items()]
    return "\n".join([f"| {title} | median | of ours |", "|---|---|---|", *rows])
