"""The measuring side of the protocol: a process that answers each line of JSON with one; see `benchmarks.worker`."""

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self, cast

ROOT = Path(__file__).resolve().parent.parent


class Failed(Exception):
    """A contestant gave no number; the text says why."""


class Process:
    """A process, to be closed; its environment is that of this process, with `variables`."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] | None = None):
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
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

    def ask(self, **request: Any) -> dict[str, Any]:
        """Sends a request and returns the answer; see `answer`."""
        with contextlib.suppress(BrokenPipeError):  # what it wrote last says why
            self._requests.write(f"{json.dumps(request)}\n")
            self._requests.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Returns what the process says next; raises `Failed` if that is nothing, or that it is unavailable."""
        line = self._answers.readline()
        if not line:
            status = self._process.wait()
            self._errors.seek(0)
            lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
            raise Failed(f"ended with status {status}: {lines[-1] if lines else 'nothing on standard error'}")
        answer: dict[str, Any] = json.loads(line)
        if "unavailable" in answer:
            raise Failed(answer["unavailable"])
        return answer
