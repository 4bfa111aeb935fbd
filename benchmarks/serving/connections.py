"""Connections that mean no good: broken off, dropped by the thousand, or hardly read from."""

import socket
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.serving import frames
from benchmarks.serving.attacks import Attack
from benchmarks.serving.questions import question
from benchmarks.serving.server import Server

AT_ONCE = 100  # connections
READERS, UNREAD = 10, 10  # slow readers, and seconds for which they read nothing
WINDOW = 65_535  # bytes that a server may send before it is told that some were read
BUFFER = WINDOW // 4  # bytes that a slow reader holds, unread
CLOSED, DROPPED = "closed", "dropped"


def connections(server: Server, texts: Sequence[str], count: int) -> list[Attack]:
    """Returns what became of all connections.

    Args:
        server: The server.
        texts: Sentences.
        count: How many connections to open and drop.
    """
    return [
        _stream(server, "a frame that breaks off", frames.call(question(texts).SerializeToString())[:-1]),
        _stream(server, "no HTTP/2", b"GET / HTTP/1.1\r\n\r\n", greeted=False),
        _drop(server, count),
        _read_slowly(server, texts),
    ]


def _stream(server: Server, sent: str, data: bytes, greeted: bool = True) -> Attack:
    """Sends bytes and no more; then waits for the server to hang up."""
    with frames.connect(server.port) as connection:
        if greeted:
            frames.greet(connection)
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
    """Opens connections, so many at once, and resets them in the midst of a request."""
    data, made = frames.call(question(["A man."]).SerializeToString())[:-1], 0
    sent = f"{count:,} connections, {AT_ONCE} at a time"
    for start in range(0, count, AT_ONCE):
        held = []
        try:
            for _ in range(min(AT_ONCE, count - start)):
                held.append(frames.connect(server.port))
                frames.greet(held[-1])
                held[-1].sendall(data)
                made += 1
        except OSError as error:
            return Attack(sent, f"{made:,} made", DROPPED, str(error))
        finally:
            for connection in held:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no goodbye
                connection.close()
    return Attack(sent, DROPPED, DROPPED)


def _read_slowly(server: Server, texts: Sequence[str]) -> Attack:
    """Asks for long answers, reads nothing for a while, and then what the server may send.

    All read at once: gRPC hangs up on who takes nothing for 20 s, and none shall wait for another that long.
    """
    request = question(texts)
    request.model_spec.signature_name = "attention"
    connections = [frames.connect(server.port, receive_buffer=BUFFER) for _ in range(READERS)]
    for connection in connections:
        frames.greet(connection)
        connection.sendall(frames.call(request.SerializeToString()))
    time.sleep(UNREAD)
    with ThreadPoolExecutor(READERS) as pool:
        failures = sum(pool.map(_read, connections), [])
    sent = f"{READERS} slow readers, of {UNREAD} s"
    return Attack(sent, f"{READERS - len(failures)} served", f"{READERS} served", "; ".join(failures))


def _read(connection: socket.socket) -> list[str]:
    """Reads what the server may send, and returns why it does not come where it does not."""
    left = WINDOW
    with connection:
        try:
            while left > 0 and (data := connection.recv(1024)):
                left -= len(data)
        except OSError as error:
            return [f"{WINDOW - left:,} bytes, then {error!r}"]
    return [f"{WINDOW - left:,} bytes, then closed"] if left > 0 else []
