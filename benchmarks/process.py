"""A process of its own for a contestant, which answers with a line of JSON at a time."""

import contextlib
import json
import math
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.timing import ROOT


class Failed(Exception):
    """A contestant told no number; the text says why."""


class Process:
    """A process, to be closed.

    Args:
        command: Program and arguments.
        environment: What its environment has besides that of this process.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None):
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
        )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        """Ends the process."""
        with contextlib.suppress(BrokenPipeError):  # it has ended itself
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def tell(self, line: str) -> None:
        """Sends a line."""
        with contextlib.suppress(BrokenPipeError):  # what it wrote last says why
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Returns what it says next.

        Raises:
            Failed: If it says nothing more, or that it cannot do what it should.
        """
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._errors.seek(0)
            lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
            raise Failed(f"ended with status {status}: {lines[-1] if lines else 'nothing on standard error'}")
        told = json.loads(line)
        if "unavailable" in told:
            raise Failed(told["unavailable"])
        return told


def until_failure(measure: Callable[[], float], tell: Callable[[str], None]) -> Callable[[], float]:
    """Returns a function that measures until that fails, and from then on returns NaN, so that others have their turns.

    Args:
        measure: Measures once.
        tell: Called with the reason, once.
    """
    going = True

    def turn() -> float:
        nonlocal going
        if going:
            try:
                return measure()
            except Failed as error:
                going = False
                tell(str(error))
        return math.nan

    return turn
