"""What the server knows of a request beside its message: how it came in, its deadline, and whether anyone waits."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from grpc import StatusCode

from export.server.errors import RequestError, deadline_exceeded

GRPC, REST = "GRPC", "REST"


@dataclass
class RequestContext:
    """The circumstances of one request."""

    entrypoint: str = ""  # `GRPC` or `REST`; empty for the server's own requests, such as warm-up
    deadline: float | None = None  # when the answer is of no more use, by `time.monotonic`; `None` means never
    is_cancelled: Callable[[], bool] = lambda: False  # tells whether the caller has hung up
    runtime: float = 0.0  # seconds that the graph took, added up by whoever runs it

    def remaining(self) -> float | None:
        """Returns the seconds that are left, at least 0; `None` without a deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        """Raises DEADLINE_EXCEEDED or CANCELLED if nobody waits for the answer any longer."""
        if self.remaining() == 0.0:
            raise deadline_exceeded()
        if self.is_cancelled():
            raise RequestError(StatusCode.CANCELLED, "The call was cancelled before it ran.")
