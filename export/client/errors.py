"""The errors of requests to a server."""

import grpc

from zoo.errors import InputError

# The status codes of requests that a server accepted and failed to process.
_FAILURES = (
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
)


def is_loading(error: grpc.RpcError) -> bool:
    """Returns whether a server reports that the model is loading."""
    return error.code() is grpc.StatusCode.UNAVAILABLE and str(error.details()).endswith(" is loading.")


class ServerError(Exception):
    """The server responded with an error, or did not respond.

    Attributes:
        code: The `grpc.StatusCode`.
    """

    def __init__(self, message: str, code: grpc.StatusCode):
        super().__init__(message)
        self.code = code


class RequestRefused(ServerError, InputError):
    """A `ServerError` that the caller can fix, by another address, request or timeout."""


def server_error(error: grpc.RpcError, server: str, timeout: float) -> ServerError:
    """Returns the `ServerError` for an error of gRPC and a timeout in seconds."""
    code, details = error.code(), error.details()
    if code in _FAILURES:
        return ServerError(f"The server at {server} failed: {code.name}: {details}", code)
    if is_loading(error):
        message = f"The server at {server} is not ready after {timeout:g} s: {details}"
    elif code == grpc.StatusCode.UNAVAILABLE:
        message = f"No server responds at {server} ({details})."
    elif code == grpc.StatusCode.DEADLINE_EXCEEDED:
        message = f"The server at {server} did not respond within {timeout:g} s."
    else:
        message = f"The server at {server} rejected the request: {code.name}: {details}"
    return RequestRefused(message, code)
