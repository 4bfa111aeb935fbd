"""Hostile connections: broken off, dropped by the thousand, or hardly read from.

HTTP/2 is written to a bare socket, since no library would break its rules (RFC 9113, sections 3.4 and 4.1; RFC 7541,
section 6.2.2; gRPC over HTTP2, "Length-Prefixed-Message").
"""

import socket
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.serving.attacks import Attack
from benchmarks.serving.protocol import METHOD, predict_request
from benchmarks.serving.server import HOST, SECONDS, Server

AT_ONCE = 100  # connections
READERS, UNREAD = 10, 10  # slow readers, and seconds for which they read nothing
WINDOW = 65_535  # bytes that a server may send before the client acknowledges some
BUFFER = WINDOW // 4  # bytes of a slow reader's buffer
CLOSED, DROPPED = "closed", "dropped"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
ACKNOWLEDGED, END_STREAM, END_HEADERS = 1, 1, 4


def connect(port: int, receive_buffer: int = 0) -> socket.socket:
    """Returns a new connection; a `receive_buffer` of 0 bytes means the system's default."""
    connection = socket.socket()
    connection.settimeout(SECONDS)
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect((HOST, port))
    return connection


def greet(connection: socket.socket) -> None:
    """Exchanges the prefaces of HTTP/2, without which a server closes the connection."""
    connection.sendall(PREFACE + _frame(SETTINGS, 0, 0, b""))
    if not connection.recv(1):
        raise ConnectionResetError("the server hung up")
    connection.sendall(_frame(SETTINGS, ACKNOWLEDGED, 0, b""))


def call(message: bytes) -> bytes:
    """Returns the frames of a call with a serialized request."""
    headers = {":method": "POST", ":scheme": "http", ":path": METHOD, ":authority": HOST}
    headers |= {"te": "trailers", "content-type": "application/grpc"}
    fields = b"".join(
        b"\x00" + b"".join(bytes([len(text)]) + text.encode() for text in header) for header in headers.items()
    )
    body = struct.pack(">BI", 0, len(message)) + message
    return _frame(HEADERS, END_HEADERS, 1, fields) + _frame(DATA, END_STREAM, 1, body)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Returns a frame; a payload has at most 16 KiB unless the peer allows more."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def connections(server: Server, texts: Sequence[str], count: int) -> list[Attack]:
    """Makes all kinds of hostile connections; `count` are opened and dropped."""
    return [
        _break_off(server, "a frame that breaks off", call(predict_request(texts).SerializeToString())[:-1]),
        _break_off(server, "no HTTP/2", b"GET / HTTP/1.1\r\n\r\n", greeting=False),
        _drop(server, count),
        _read_slowly(server, texts),
    ]


def _break_off(server: Server, sent: str, data: bytes, greeting: bool = True) -> Attack:
    """Sends bytes and nothing after them; then waits for the server to close the connection."""
    with connect(server.port) as connection:
        if greeting:
            greet(connection)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        try:
            while connection.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return Attack(sent, "still open", CLOSED)
    return Attack(sent, CLOSED, CLOSED)


def _drop(server: Server, count: int) -> Attack:
    """Opens connections, `AT_ONCE` at a time, and resets them in the middle of a request."""
    data, made = call(predict_request(["A man."]).SerializeToString())[:-1], 0
    sent = f"{count:,} connections, {AT_ONCE} at a time"
    for start in range(0, count, AT_ONCE):
        opened: list[socket.socket] = []
        try:
            for _ in range(min(AT_ONCE, count - start)):
                opened.append(connect(server.port))
                greet(opened[-1])
                opened[-1].sendall(data)
                made += 1
        except OSError as error:
            return Attack(sent, f"{made:,} made", DROPPED, str(error))
        finally:
            for connection in opened:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
                connection.close()
    return Attack(sent, DROPPED, DROPPED)


def _read_slowly(server: Server, texts: Sequence[str]) -> Attack:
    """Requests long responses, reads nothing for `UNREAD` seconds, and then a window of each.

    All readers read at the same time, since gRPC closes a connection that takes nothing for 20 s.
    """
    request = predict_request(texts)
    request.model_spec.signature_name = "attention"
    readers = [connect(server.port, receive_buffer=BUFFER) for _ in range(READERS)]
    for connection in readers:
        greet(connection)
        connection.sendall(call(request.SerializeToString()))
    time.sleep(UNREAD)
    with ThreadPoolExecutor(READERS) as pool:
        failures = sum(pool.map(_read_window, readers), [])
    sent = f"{READERS} slow readers, of {UNREAD} s"
    return Attack(sent, f"{READERS - len(failures)} served", f"{READERS} served", "; ".join(failures))


def _read_window(connection: socket.socket) -> list[str]:
    """Reads a window of bytes; returns a line with the reason if fewer arrive."""
    left = WINDOW
    with connection:
        try:
            while left > 0 and (data := connection.recv(1024)):
                left -= len(data)
        except OSError as error:
            return [f"{WINDOW - left:,} bytes, then {error!r}"]
    return [f"{WINDOW - left:,} bytes, then closed"] if left > 0 else []
