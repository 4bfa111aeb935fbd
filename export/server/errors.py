"""The errors of the server: those of requests have a gRPC status code, others a message for the operator."""

import functools

from grpc import StatusCode

# gRPC sends the message in a header, three characters for a byte beyond ASCII; clients refuse headers beyond 8 KiB.
_LONGEST_MESSAGE = 2000
_CODES = {code.value[0]: code for code in StatusCode}


class ServingError(ValueError):
    """A flag, a file or a model is invalid; the operator of the server can fix it."""


class RequestError(Exception):
    """A request failed; contains the stock server's status code for it and a message."""

    def __init__(self, code: StatusCode, message: str):
        encoded = message.encode(errors="replace")
        if len(encoded) > _LONGEST_MESSAGE:
            message = encoded[:_LONGEST_MESSAGE].decode(errors="ignore") + " …"
        super().__init__(message)
        self.code = code
        self.message = message


invalid_argument = functools.partial(RequestError, StatusCode.INVALID_ARGUMENT)
failed_precondition = functools.partial(RequestError, StatusCode.FAILED_PRECONDITION)
not_found = functools.partial(RequestError, StatusCode.NOT_FOUND)


def deadline_exceeded() -> RequestError:
    """Returns the error for a request whose deadline has passed."""
    return RequestError(StatusCode.DEADLINE_EXCEEDED, "Deadline exceeded before the response was computed.")


def internal() -> RequestError:
    """Returns the error for a request that failed because of a fault in the server."""
    return RequestError(StatusCode.INTERNAL, "Internal error; the server's log has the details.")


def from_number(number: int, message: str) -> RequestError:
    """Returns the error for a canonical status number, such as that of TensorFlow's errors."""
    return RequestError(_CODES.get(number, StatusCode.UNKNOWN), message)
