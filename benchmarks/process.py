"""The measuring side of the protocol: a process that answers each line of JSON with one; see `benchmarks.worker`."""

import contextlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self, cast

ROOT = Path(__file__).resolve().parent.parent


class Failed(Exception):
    """A contestant gave no number; the text says why."""


class Process:
    """A process, to be closed; its environment is that of this process, with `variables`.

    What it writes to standard error is appended to a `log`, if there is one.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] | None = None, log: Path | None = None):
        options: dict[str, Any] = {"encoding": "utf-8", "errors": "replace"}
        self._errors = tempfile.TemporaryFile("w+", **options) if log is None else log.open("a+", **options)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, **(variables or {})},
        )
        self._requests, self._answers = (cast(IO[str], pipe) for pipe in (self._process.stdin, self._process.stdout))

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended by itself
            self._requests.close()
        self._process.wait()
        self._answers.close()
        self._errors.close()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()

    def ask(self, within: float | None = None, /, **request: Any) -> dict[str, Any]:
        """Sends a request and returns the answer; see `answer`."""
        with contextlib.suppress(BrokenPipeError):  # what it wrote last says why
            self._requests.write(f"{json.dumps(request)}\n")
            self._requests.flush()
        return self.answer(within)

    @contextlib.contextmanager
    def _killed_after(self, seconds: float | None) -> Iterator[threading.Event]:
        """Kills the process if the block takes longer, and sets the event that is yielded."""
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            self.kill()

        watch = threading.Timer(seconds or 0, end)
        if seconds is not None:
            watch.start()
        try:
            yield is_late
        finally:
            watch.cancel()

    def answer(self, within: float | None = None) -> dict[str, Any]:
        """Returns what the process says next; raises `Failed` if that is nothing, or that it is unavailable.

        It is killed unless it answers `within` so many seconds.
        """
        with self._killed_after(within) as is_late:
            line = self._answers.readline()
        if not line:
            status = self._process.wait()
            if is_late.is_set():
                raise Failed(f"took more than {within:.0f} s")
            self._errors.seek(0)
            lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
            raise Failed(f"ended with status {status}: {lines[-1] if lines else 'nothing on standard error'}")
        answer: dict[str, Any] = json.loads(line)
        if "unavailable" in answer:
            raise Failed(answer["unavailable"])
        return answer
