"""One call as the handlers see it: how it came in, until when it matters, and whether anyone still waits."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from grpc import StatusCode

from export.server.status import RequestError

GRPC, REST = "GRPC", "REST"


def _never() -> bool:
    return False


@dataclass
class Call:
    """What a handler may know about its caller.

    Attributes:
        entrypoint: `GRPC` or `REST`; empty for the server's own, such as warm-up.
        deadline: When the answer is of no more use, by `time.monotonic`; `None` means never.
        is_gone: Tells whether the caller has hung up.
        runtime: Seconds the graph took, added up by whoever runs it.
    """

    entrypoint: str = ""
    deadline: float | None = None
    is_gone: Callable[[], bool] = _never
    runtime: float = 0.0

    def remaining(self) -> float | None:
        """Returns the seconds that are left, at least 0; `None` without a deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        """Does nothing while someone waits for the answer.

        Raises:
            RequestError: DEADLINE_EXCEEDED or CANCELLED.
        """
        if self.remaining() == 0.0:
            raise too_late()
        if self.is_gone():
            raise RequestError(StatusCode.CANCELLED, "The call was cancelled before it ran.")


def too_late() -> RequestError:
    """Returns the error for a call whose deadline has passed."""
    return RequestError(StatusCode.DEADLINE_EXCEEDED, "Deadline exceeded before the answer was computed.")
