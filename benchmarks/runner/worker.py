"""The contestant's side of the protocol: a process that prepares its work, and measures it once for each request.

`python -m benchmarks.runner.worker TASK`, where `TASK` is a JSON object; its `adapter`, `MODULE:FUNCTION`, is called
with a `Channel`. When it is prepared, the process writes a line of JSON with its introduction, or with the reason why
it is `unavailable`. Then it writes a line for each line that it reads. It also runs in the environments of the peers,
and requires nothing but Python there.
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.runner.memory import peak_memory


class Unavailable(Exception):
    """A contestant cannot run on this machine, since a layer or a device is missing."""


class Channel:
    """The connection of a contestant with the process that measures; `task` describes its work."""

    def __init__(self, task: Mapping[str, Any]):
        self.task = task
        # Libraries print to standard output, which is redirected to standard error; responses use the original one.
        self._responses = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        # Otherwise the output of libraries would follow the error that ended the process.
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def send(self, **values: Any) -> None:
        """Sends a line of JSON."""
        print(json.dumps(values), file=self._responses, flush=True)

    def introduce(self, packages: Iterable[str] = (), **values: Any) -> None:
        """Sends the introduction, with the versions of packages, after the first step, which compiles."""
        self.send(versions={name: importlib.metadata.version(name) for name in packages}, **values)

    def receive(self) -> dict[str, Any] | None:
        """Waits for the next request and returns it; `None` after the last one."""
        line = sys.stdin.readline()
        return json.loads(line) if line else None

    def begin(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def taken(self) -> dict[str, float]:
        """Returns the time of the turn so far, by the clock and of processors, and the peak of memory."""
        seconds, processor = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        return {"seconds": seconds, "processor": processor, "peak": peak_memory()}

    def serve(self, measure: Callable[[], Any], describe: Callable[[Any], Mapping[str, Any]]) -> None:
        """Takes a turn for each request.

        Args:
            measure: Function that is timed.
            describe: Function from its outcome to further values of the response; it raises if work was not equal.
        """
        while self.receive() is not None:
            self.begin()
            outcome = measure()
            taken = self.taken()
            self.send(**taken, **describe(outcome))
        self.leave()

    def leave(self) -> None:
        """Ends the process at once, since libraries may take a minute to shut down."""
        os._exit(0)


def main() -> int:
    """Runs the contestant of the task on the command line."""
    # Some passes take 10 GB: if memory runs out, the system ends this process first.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    channel = Channel(json.loads(sys.argv[1]))
    module, _, function = channel.task["adapter"].partition(":")
    try:
        getattr(importlib.import_module(module), function)(channel)
    except Unavailable as error:
        channel.send(unavailable=str(error))
    except ModuleNotFoundError as error:
        channel.send(unavailable=f"{error.name} is not installed")
    return 0


if __name__ == "__main__":
    from benchmarks.runner import worker  # the module that adapters import, so that `Unavailable` is one class

    sys.exit(worker.main())
