"""The side of the protocol that measures: a process of one library that answers what `benchmarks.gpu.runner` asks.

It introduces itself, and then answers each request with a line: `prepare` with tasks to compile ahead, `wait` until
that is done, and `measure` with a task. What fails is answered as `unavailable`, and the next request is read, unless
the device may be left in a bad state: then the process ends without an answer, and its successor goes on.
"""

import gc
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.worker import Channel
from training.hardware.peaks import peak_of

_BAD_STATE = ("CUDA_ERROR", "CUDA error", "cuDNN error", "illegal memory access", "INTERNAL:")
_MEMORY = ("out of memory", "RESOURCE_EXHAUSTED", "CUDA_ERROR_OUT_OF_MEMORY")

Answer = dict[str, Any]


class Library:
    """What a process does with a library; a subclass measures.

    Attributes:
        card: What the driver calls the device.
        versions: The versions of what takes part.
    """

    card: str = ""
    versions: Mapping[str, str] = {}

    def prepare(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Compiles what tasks need, or begins to."""

    def wait(self, seconds: float) -> Answer:
        """Waits until that is done, at most so long; returns what is to be said of it."""
        return {}

    def measure(self, task: Mapping[str, Any]) -> Answer:
        """Returns what was measured, by column."""
        raise NotImplementedError(f"{type(self).__name__} must override `measure`.")

    def forget(self) -> None:
        """Gives memory back after a task."""
        gc.collect()


def serve(channel: Channel, library: Library) -> None:
    """Answers requests until there are no more."""
    about = {"card": library.card, "versions": dict(library.versions)}
    channel.send(**about)
    while (request := channel.receive()) is not None:
        if "prepare" in request:
            channel.send()  # before it is done: meanwhile others are asked
            _prepare(library, request["prepare"])
            continue
        try:
            answer = library.wait(request["wait"]) if "wait" in request else library.measure(request["measure"])
            channel.send(**answer, **about)
        except Exception as error:
            traceback.print_exc()
            print(reason(error), file=sys.stderr, flush=True)
            if leaves_a_bad_state(error):
                break
            channel.send(unavailable=reason(error))
        library.forget()
    channel.leave()


def _prepare(library: Library, tasks: Sequence[Mapping[str, Any]]) -> None:
    try:
        library.prepare(tasks)
    except Exception:  # it fails again when it is measured, and is reported there
        traceback.print_exc()


def leaves_a_bad_state(error: Exception) -> bool:
    """Returns whether all that follows on the device may fail, too; a lack of memory passes."""
    return any(text in str(error) for text in _BAD_STATE) and not any(text in str(error) for text in _MEMORY)


def reason(error: Exception) -> str:
    """Returns a line that says what failed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"


def take_turns(turn: Callable[[], Any], finish: Callable[[], Any], task: Mapping[str, Any]) -> list[float]:
    """Returns the seconds of a turn in each of some groups of turns.

    Work is only queued in a turn, and `finish` waits for it, so that a group of turns is timed as one.

    Args:
        turn: Takes a turn.
        finish: Waits until what was queued is done.
        task: `warm_up`, the turns before those that count, and `turns` and `groups`, how many count.
    """
    for _ in range(task["warm_up"]):
        turn()
    finish()
    seconds, each = [], max(1, task["turns"] // task["groups"])
    for _ in range(task["groups"]):
        started = time.perf_counter()
        for _ in range(each):
            turn()
        finish()
        seconds.append((time.perf_counter() - started) / each)
    return seconds


def described(seconds: Sequence[float], units: float, unit: str, operations: float, card: str) -> Answer:
    """Returns the columns of a figure.

    Args:
        seconds: Of a turn, in each group.
        units: Tokens or the like of a turn.
        unit: What they are.
        operations: Additions and multiplications of a turn, by our own count; 0 for unknown.
        card: What the driver calls the device.
    """
    median, peak = statistics.median(seconds), peak_of(card)
    return {
        "rate": units / median,
        "unit": unit,
        "milliseconds": 1000 * median,
        "groups_ms": [1000 * each for each in seconds],
        "operations": operations,
        "share_of_peak": operations / median / peak if peak and operations else None,
    }
