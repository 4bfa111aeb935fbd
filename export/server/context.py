"""The context of a request: its API, its deadline, and whether the client is still connected."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from grpc import StatusCode

from export.server.errors import RequestError, deadline_exceeded

GRPC, REST = "GRPC", "REST"


@dataclass
class RequestContext:
    """The context of one request."""

    entrypoint: str = ""  # `GRPC` or `REST`; empty for the server's own requests, such as warm-up
    deadline: float | None = None  # by `time.monotonic`; `None` means no deadline
    is_cancelled: Callable[[], bool] = lambda: False  # returns whether the client has disconnected
    runtime: float = 0.0  # seconds for which the graph ran, in total

    def remaining(self) -> float | None:
        """Returns the remaining seconds, at least 0; `None` without a deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def check(self) -> None:
        """Raises DEADLINE_EXCEEDED or CANCELLED if the client no longer waits for the response."""
        if self.remaining() == 0.0:
            raise deadline_exceeded()
        if self.is_cancelled():
            raise RequestError(StatusCode.CANCELLED, "The call was cancelled before it ran.")
