"""HTTP/2 by hand, for clients that no library would be: calls over a bare socket, whole or broken off."""

import socket
import struct

from benchmarks.serving.questions import METHOD
from benchmarks.serving.server import HOST, SECONDS

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_ACKNOWLEDGED, _END_STREAM, _END_HEADERS = 1, 1, 4


def connect(port: int, receive_buffer: int = 0) -> socket.socket:
    """Returns a connection on which nothing was said yet.

    Args:
        port: The server's port.
        receive_buffer: Bytes that this side can hold; 0 means as many as the system likes.
    """
    connection = socket.socket()
    connection.settimeout(SECONDS)
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect((HOST, port))
    return connection


def greet(connection: socket.socket) -> None:
    """Exchanges the greetings of HTTP/2, without which a server hangs up sooner or later."""
    connection.sendall(_PREFACE + _frame(_SETTINGS, 0, 0, b""))
    if not connection.recv(1):
        raise ConnectionResetError("the server hung up")
    connection.sendall(_frame(_SETTINGS, _ACKNOWLEDGED, 0, b""))


def call(message: bytes) -> bytes:
    """Returns what a client sends, after the greeting, that asks for a prediction.

    Args:
        message: The request, serialized.

    Reference: RFC 9113, sections 3.4 and 4.1; RFC 7541, section 6.2.2; gRPC over HTTP2, "Length-Prefixed-Message".
    """
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": METHOD,
        ":authority": HOST,
        "te": "trailers",
        "content-type": "application/grpc",
    }
    fields = b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers.items())
    body = struct.pack(">BI", 0, len(message)) + message
    return _frame(_HEADERS, _END_HEADERS, 1, fields) + _frame(_DATA, _END_STREAM, 1, body)


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Returns a frame; a payload has at most 16 KiB unless the other side allows more."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload
