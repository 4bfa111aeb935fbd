"""How a request fails: one exception that carries a gRPC status code, and its HTTP counterpart."""

from grpc import StatusCode

# gRPC sends the message in a header, and clients refuse headers beyond 8 KiB by default.
_LONGEST_MESSAGE = 2000

# The table of the stock server (`ToHTTPStatusCode`); codes that are not listed mean 500.
_HTTP_STATUS = {
    StatusCode.OK: 200,
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.OUT_OF_RANGE: 400,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.NOT_FOUND: 404,
    StatusCode.ALREADY_EXISTS: 409,
    StatusCode.ABORTED: 409,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.CANCELLED: 499,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.DEADLINE_EXCEEDED: 504,
}
_BY_NUMBER = {code.value[0]: code for code in StatusCode}


class RequestError(Exception):
    """A request that cannot be answered, with the status code to answer it with.

    Attributes:
        code: The `grpc.StatusCode`.
        message: What is wrong, for the client.
    """

    def __init__(self, code: StatusCode, message: str):
        if len(message) > _LONGEST_MESSAGE:
            message = message[:_LONGEST_MESSAGE] + " …"
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def http_status(self) -> int:
        """The HTTP status that the stock server sends for this code."""
        return _HTTP_STATUS.get(self.code, 500)


def invalid_argument(message: str) -> RequestError:
    """Returns the error for a request that is wrong in itself."""
    return RequestError(StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> RequestError:
    """Returns the error for a model or version that is not served."""
    return RequestError(StatusCode.NOT_FOUND, message)


def broken() -> RequestError:
    """Returns the error for a request that failed for reasons that are not its own."""
    return RequestError(StatusCode.INTERNAL, "Internal error; the server's log has the details.")


def from_number(number: int, message: str) -> RequestError:
    """Returns the error for a canonical status number, as TensorFlow's errors carry it."""
    return RequestError(_BY_NUMBER.get(number, StatusCode.UNKNOWN), message)
