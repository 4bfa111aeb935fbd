"""Measures figures in order, each in the process of its library, continues after a failure, and stops in time."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from benchmarks.gpu.figure import OURS, Figure
from benchmarks.gpu.results import Results, as_row
from benchmarks.runner.process import Failed

RESERVE = 5.0
"""Seconds at the end to pack the compiled programs."""


class Contestants(Protocol):
    """The process of a library; see `benchmarks.runner.process.Process`."""

    @property
    def has_ended(self) -> bool: ...

    def receive(self, within: float | None = None) -> dict[str, Any]: ...

    def request(self, within: float | None = None, /, **request: Any) -> dict[str, Any]: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


class Runner:
    """Measures figures.

    Args:
        results: The files of figures.
        start: Function that starts the process of a library.
        deadline: The end of the time, on the clock.
        clock: Function that returns seconds.
    """

    def __init__(
        self,
        results: Results,
        start: Callable[[str], Contestants],
        deadline: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._results, self._start, self._deadline, self._clock = results, start, deadline, clock
        self._processes: dict[str, Contestants] = {}

    @property
    def left(self) -> float:
        """The remaining seconds."""
        return self._deadline - RESERVE - self._clock()

    def run(self, figures: Sequence[Figure]) -> None:
        """Measures the first figure while the others are compiled, and then the others."""
        libraries = dict.fromkeys(figure.library for figure in figures)
        for library in libraries:  # so that all start at the same time
            self._launch(library)
        for library in libraries:
            self._prepare(library, figures)
        for number, figure in enumerate(figures):
            if number == 1:
                self._wait(libraries)
            self._measure(figure)

    def close(self) -> None:
        """Ends the processes."""
        for process in self._processes.values():
            process.kill()
            process.close()
        self._processes.clear()

    def _launch(self, library: str) -> None:
        try:
            self._processes[library] = self._start(library)
        except (Failed, OSError) as error:
            self._results.write(library, remark=f"not started: {error}")

    def _prepare(self, library: str, figures: Sequence[Figure]) -> None:
        """Waits until a process has started, and starts the compilation of its figures in the background."""
        if (process := self._processes.get(library)) is None:
            return
        tasks = [figure.task() for figure in figures if figure.library == library]
        try:
            process.receive(self._at_most(120))
            process.request(self._at_most(120), prepare=tasks)
        except Failed as error:
            self._end(library)
            self._results.write(library, remark=f"not started: {error}")

    def _wait(self, libraries: Sequence[str] | dict[str, None]) -> None:
        """Waits until everything is compiled, so that it disturbs no figure, up to half of the remaining time."""
        for library in libraries:
            process = self._processes.get(library)
            if process is None or self.left < 0:
                continue
            try:
                response = process.request(self._at_most(self.left / 2 + 30), wait=self.left / 2)
                self._results.write("compiled", library, **as_row(response))
            except Failed as error:
                self._end(library)
                self._results.write("compiled", library, remark=f"failed: {error}")

    def _measure(self, figure: Figure) -> None:
        if self.left < figure.seconds:
            remark = f"left out: {self.left:.0f} s were left, and it takes up to {figure.seconds:.0f}"
            self._results.write(figure.name, figure.contestant, remark=remark)
            return
        try:
            process = self._process_of(figure)
            response = process.request(self._at_most(figure.limit), measure=self._task_of(figure))
        except Failed as error:
            self._results.write(figure.name, figure.contestant, remark=f"failed: {error}")
            print(f"{figure.label}: {error}", file=sys.stderr, flush=True)
            return
        self._results.write(figure.name, figure.contestant, **as_row(response))
        print(f"{figure.label}: {_summary(response)}", flush=True)

    def _task_of(self, figure: Figure) -> dict[str, Any]:
        """Returns the task of a figure, with the number of operations that was counted for our layers."""
        counted = self._results.value(figure.name, OURS, "operations")
        return {"operations": counted or 0, **figure.task()}

    def _process_of(self, figure: Figure) -> Contestants:
        """Returns the process that measures a figure, after restarting it if it has ended."""
        library = figure.library
        process = self._processes.get(library)
        if process is not None and process.has_ended:
            self._end(library)
            process = None
        if process is None:
            self._launch(library)
            self._prepare(library, [figure])
        if library not in self._processes:
            raise Failed(f"{library} does not start")
        return self._processes[library]

    def _end(self, library: str) -> None:
        process = self._processes.pop(library)
        process.kill()
        process.close()

    def _at_most(self, seconds: float) -> float:
        return max(1.0, min(seconds, self.left))


def _summary(response: dict[str, Any]) -> str:
    parts = []
    if response.get("rate") is not None:
        parts.append(f"{response['rate']:,.0f} {response.get('unit', '')}/s")
    if response.get("milliseconds") is not None:
        parts.append(f"{response['milliseconds']:,.2f} ms")
    if response.get("share_of_peak") is not None:
        parts.append(f"{response['share_of_peak']:.1%} of the peak")
    if response.get("peak_memory") is not None:
        parts.append(f"{response['peak_memory'] / 1e9:,.2f} GB")
    return ", ".join([*parts, *([response["remark"]] if response.get("remark") else [])]) or "done"
