"""The measuring process of one library, which responds to `benchmarks.gpu.runner`.

It sends its introduction, and then a line for each request: `prepare` with tasks to compile, `wait` until these are
compiled, and `measure` with a task. After a failure it responds `unavailable` and reads the next request, unless the
device may be in a bad state: then the process ends without a response, and the runner restarts it.
"""

import gc
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.runner.worker import Channel
from training.hardware.peaks import peak_of

_BAD_STATE = ("CUDA_ERROR", "CUDA error", "cuDNN error", "illegal memory access", "INTERNAL:")
_MEMORY = ("out of memory", "RESOURCE_EXHAUSTED", "CUDA_ERROR_OUT_OF_MEMORY")

Answer = dict[str, Any]


class Library:
    """The work of a process with a library; a subclass measures.

    Attributes:
        card: The driver's name of the device.
        versions: The versions of the libraries.
    """

    card: str = ""
    versions: Mapping[str, str] = {}

    def prepare(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Compiles the programs of tasks, or starts to."""

    def wait(self, seconds: float) -> Answer:
        """Waits until they are compiled, up to some seconds; returns a remark."""
        return {}

    def measure(self, task: Mapping[str, Any]) -> Answer:
        """Returns the measurements of a task by column."""
        raise NotImplementedError(f"{type(self).__name__} must override `measure`.")

    def forget(self) -> None:
        """Frees memory after a task."""
        gc.collect()


def serve(channel: Channel, library: Library) -> None:
    """Responds to requests until the last one."""
    about = {"card": library.card, "versions": dict(library.versions)}
    channel.send(**about)
    while (request := channel.receive()) is not None:
        if "prepare" in request:
            channel.send()  # before the work, so that the runner can continue
            _prepare(library, request["prepare"])
            continue
        try:
            response = library.wait(request["wait"]) if "wait" in request else library.measure(request["measure"])
            channel.send(**response, **about)
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
    except Exception:  # which `measure` raises and reports again
        traceback.print_exc()


def leaves_a_bad_state(error: Exception) -> bool:
    """Returns whether later work on the device may fail, too, unlike after a lack of memory."""
    return any(text in str(error) for text in _BAD_STATE) and not any(text in str(error) for text in _MEMORY)


def reason(error: Exception) -> str:
    """Returns an error as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300] if lines else ''}"


def take_turns(turn: Callable[[], Any], finish: Callable[[], Any], task: Mapping[str, Any]) -> list[float]:
    """Returns the seconds of a turn in each group of turns.

    A turn only queues work, and `finish` waits for it, so that a group of turns is timed as a whole.

    Args:
        turn: Function that takes a turn.
        finish: Function that waits for the queued work.
        task: The numbers `warm_up`, of turns that are not timed, `turns` and `groups`.
    """
    for _ in range(task["warm_up"]):
        turn()
    finish()
    seconds, turns = [], max(1, task["turns"] // task["groups"])
    for _ in range(task["groups"]):
        started = time.perf_counter()
        for _ in range(turns):
            turn()
        finish()
        seconds.append((time.perf_counter() - started) / turns)
    return seconds


def time_calls(
    call: Callable[[], Any], finish: Callable[[Any], Any], task: Mapping[str, Any]
) -> tuple[list[float], Any]:
    """Returns the seconds of a call, and its last result, for which `finish` waits; see `take_turns`."""
    results: list[Any] = [None]

    def turn() -> None:
        results[0] = call()

    return take_turns(turn, lambda: finish(results[0]), task), results[0]


def described(seconds: Sequence[float], units: float, unit: str, operations: float, card: str) -> Answer:
    """Returns the columns of a figure.

    Args:
        seconds: Those of a turn, in each group.
        units: The number of units of a turn, such as tokens.
        unit: Their name.
        operations: Additions and multiplications of a turn, by our own count; 0 for unknown.
        card: The driver's name of the device.
    """
    median, peak = statistics.median(seconds), peak_of(card)
    return {
        "rate": units / median,
        "unit": unit,
        "milliseconds": 1000 * median,
        "groups_ms": [1000 * value for value in seconds],
        "operations": operations,
        "share_of_peak": operations / median / peak if peak and operations else None,
    }
