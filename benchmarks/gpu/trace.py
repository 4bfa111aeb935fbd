"""What takes the time of a step, by the trace that JAX's profiler writes for Chrome and Perfetto."""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Kernel:
    """Kernels of one kind, together."""

    name: str
    count: int
    seconds: float
    example: str  # one of them, with its number


def kernels_of(trace: Mapping[str, Any]) -> list[Kernel]:
    """Returns the kernels of a trace that ran on a device, those that took longest together first.

    Of a GPU those are the events of its streams; the trace has them once more by module and by operation. Without a
    device it is the operations of XLA that count.
    """
    events = trace["traceEvents"]
    named = {name: _names(events, name) for name in ("process_name", "thread_name")}
    found: dict[str, list[tuple[str, float]]] = {}
    has_device = any("device:" in name for name in named["process_name"].values())
    for event in events:
        if event.get("ph") != "X":
            continue
        thread = named["thread_name"].get((event.get("pid"), event.get("tid")), "")
        process = named["process_name"].get((event.get("pid"), None), "")
        runs = thread.startswith("Stream") and "device:" in process
        if runs if has_device else "hlo_op" in event.get("args", {}):
            found.setdefault(kind_of(event["name"]), []).append((event["name"], event.get("dur", 0) * 1e-6))
    kernels = [
        Kernel(kind, len(each), sum(seconds for _, seconds in each), max(each, key=lambda kernel: kernel[1])[0])
        for kind, each in found.items()
    ]
    return sorted(kernels, key=lambda kernel: -kernel.seconds)


def kind_of(name: str) -> str:
    """Returns the name of a kernel without the numbers that tell those of one kind apart."""
    return re.sub(r"([._](\d+|clone|remat\d*))+$", "", name)


def write_kernels(kernels: list[Kernel], path: Path) -> None:
    """Writes kinds of kernels as a table."""
    together = sum(kernel.seconds for kernel in kernels) or 1.0
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["kind", "count", "milliseconds", "share", "example"])
        for kernel in kernels:
            share = f"{kernel.seconds / together:.4f}"
            table.writerow([kernel.name, kernel.count, f"{1000 * kernel.seconds:.4f}", share, kernel.example])


def _names(events: Any, name: str) -> dict[tuple[Any, Any], str]:
    return {
        (event.get("pid"), event.get("tid") if name == "thread_name" else None): str(event["args"].get("name", ""))
        for event in events
        if event.get("ph") == "M" and event.get("name") == name
    }
