"""How serving fails: requests with a gRPC status code, everything else with one line for whoever runs the server."""

from grpc import StatusCode

# gRPC sends the message in a header, three characters for a byte beyond ASCII; clients refuse headers beyond 8 KiB.
_LONGEST_MESSAGE = 2000
_CODES = {code.value[0]: code for code in StatusCode}


class ServingError(ValueError):
    """A flag, a file or a model is wrong, and whoever runs the server can mend it."""


class RequestError(Exception):
    """A request that cannot be answered.

    Args:
        code: The status code to answer it with, as the stock server would.
        message: What is wrong, for the client.
    """

    def __init__(self, code: StatusCode, message: str):
        encoded = message.encode(errors="replace")
        if len(encoded) > _LONGEST_MESSAGE:
            message = encoded[:_LONGEST_MESSAGE].decode(errors="ignore") + " …"
        super().__init__(message)
        self.code = code
        self.message = message


def invalid_argument(message: str) -> RequestError:
    """Returns the error for a request that is wrong in itself."""
    return RequestError(StatusCode.INVALID_ARGUMENT, message)


def failed_precondition(message: str) -> RequestError:
    """Returns the error for a request that this model, or this state of the server, cannot answer."""
    return RequestError(StatusCode.FAILED_PRECONDITION, message)


def not_found(message: str) -> RequestError:
    """Returns the error for a model or version that is not served."""
    return RequestError(StatusCode.NOT_FOUND, message)


def deadline_exceeded() -> RequestError:
    """Returns the error for a request whose deadline has passed."""
    return RequestError(StatusCode.DEADLINE_EXCEEDED, "Deadline exceeded before the answer was computed.")


def internal() -> RequestError:
    """Returns the error for a request that failed for reasons that are not its own."""
    return RequestError(StatusCode.INTERNAL, "Internal error; the server's log has the details.")


def from_number(number: int, message: str) -> RequestError:
    """Returns the error for a canonical status number, as TensorFlow's errors carry it."""
    return RequestError(_CODES.get(number, StatusCode.UNKNOWN), message)
