"""The kernels of a step, from the trace that JAX's profiler writes for Chrome and Perfetto."""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Kernel:
    """The kernels of one kind."""

    name: str
    count: int
    seconds: float
    example: str  # the name of the longest one


def kernels_of(trace: Mapping[str, Any]) -> list[Kernel]:
    """Returns the kinds of kernels of a trace that ran on a device, in descending order of their total time.

    The kernels of a GPU are the events of its streams, which the trace repeats by module and by operation. Without a
    GPU they are the operations of XLA.
    """
    events = trace["traceEvents"]
    names = {kind: _names(events, kind) for kind in ("process_name", "thread_name")}
    by_kind: dict[str, list[tuple[str, float]]] = {}
    has_device = any("device:" in name for name in names["process_name"].values())
    for event in events:
        if event.get("ph") != "X":
            continue
        thread = names["thread_name"].get((event.get("pid"), event.get("tid")), "")
        process = names["process_name"].get((event.get("pid"), None), "")
        is_of_stream = thread.startswith("Stream") and "device:" in process
        if is_of_stream if has_device else "hlo_op" in event.get("args", {}):
            by_kind.setdefault(kind_of(event["name"]), []).append((event["name"], event.get("dur", 0) * 1e-6))
    kernels = [
        Kernel(kind, len(runs), sum(seconds for _, seconds in runs), max(runs, key=lambda run: run[1])[0])
        for kind, runs in by_kind.items()
    ]
    return sorted(kernels, key=lambda kernel: -kernel.seconds)


def kind_of(name: str) -> str:
    """Returns the name of a kernel without its numbers."""
    return re.sub(r"([._](\d+|clone|remat\d*))+$", "", name)


def write_kernels(kernels: list[Kernel], path: Path) -> None:
    """Writes kinds of kernels as a table."""
    total = sum(kernel.seconds for kernel in kernels) or 1.0
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["kind", "count", "milliseconds", "share", "example"])
        for kernel in kernels:
            share = f"{kernel.seconds / total:.4f}"
            table.writerow([kernel.name, kernel.count, f"{1000 * kernel.seconds:.4f}", share, kernel.example])


def _names(events: Any, name: str) -> dict[tuple[Any, Any], str]:
    return {
        (event.get("pid"), event.get("tid") if name == "thread_name" else None): str(event["args"].get("name", ""))
        for event in events
        if event.get("ph") == "M" and event.get("name") == name
    }
