"""What can go wrong when a server is asked."""

import grpc

from zoo.errors import InputError

# What a server answers when it failed at something that it accepted.
_FAILURES = (
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
)


def is_loading(error: grpc.RpcError) -> bool:
    """Returns whether a server answers that the model is loading."""
    return error.code() is grpc.StatusCode.UNAVAILABLE and str(error.details()).endswith(" is loading.")


class ServerError(Exception):
    """The server answered with an error, or not at all.

    Attributes:
        code: The `grpc.StatusCode`.
    """

    def __init__(self, message: str, code: grpc.StatusCode):
        super().__init__(message)
        self.code = code


class RequestRefused(ServerError, InputError):
    """A `ServerError` that the caller can fix: the address, the request, or the time allowed."""


def server_error(error: grpc.RpcError, server: str, timeout: float) -> ServerError:
    """Returns what an error of gRPC means, in words; the server was given `timeout` seconds."""
    code, details = error.code(), error.details()
    if code in _FAILURES:
        return ServerError(f"The server at {server} failed: {code.name}: {details}", code)
    if is_loading(error):
        message = f"The server at {server} is not ready after {timeout:g} s: {details}"
    elif code == grpc.StatusCode.UNAVAILABLE:
        message = f"No server answers at {server} ({details})."
    elif code == grpc.StatusCode.DEADLINE_EXCEEDED:
        message = f"The server at {server} did not answer within {timeout:g} s."
    else:
        message = f"The server at {server} refused the request: {code.name}: {details}"
    return RequestRefused(message, code)
