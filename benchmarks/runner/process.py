"""The measuring side of the protocol: a process that responds to lines of JSON; see `benchmarks.runner.worker`."""

import contextlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self, cast

ROOT = Path(__file__).resolve().parents[2]


class Failed(Exception):
    """A contestant measured nothing; the message is the reason."""


class Process:
    """A process, to be closed; its environment is that of this process, with `variables`.

    Its standard error is appended to the file `log`, if one is passed.
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
        self._requests, self._responses = (cast(IO[str], pipe) for pipe in (self._process.stdin, self._process.stdout))

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # the process has ended
            self._requests.close()
        self._process.wait()
        self._responses.close()
        self._errors.close()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()

    def request(self, within: float | None = None, /, **request: Any) -> dict[str, Any]:
        """Sends a request and returns the response; see `receive`."""
        with contextlib.suppress(BrokenPipeError):  # `receive` raises an error with the reason
            self._requests.write(f"{json.dumps(request)}\n")
            self._requests.flush()
        return self.receive(within)

    @contextlib.contextmanager
    def _killed_after(self, seconds: float | None) -> Iterator[threading.Event]:
        """Kills the process and sets the yielded event if the block takes longer."""
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

    def receive(self, within: float | None = None) -> dict[str, Any]:
        """Returns the next response; raises `Failed` if the process ends, or responds that it is unavailable.

        The process is killed unless it responds `within` so many seconds.
        """
        with self._killed_after(within) as is_late:
            line = self._responses.readline()
        if not line:
            status = self._process.wait()
            if is_late.is_set():
                raise Failed(f"took more than {within:.0f} s")
            self._errors.seek(0)
            lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
            raise Failed(f"ended with status {status}: {lines[-1] if lines else 'nothing on standard error'}")
        response: dict[str, Any] = json.loads(line)
        if "unavailable" in response:
            raise Failed(response["unavailable"])
        return response
