"""What carries REST requests: CORS, deadlines, a graceful end, and clients that mean no good."""

import contextlib
import http.client
import itertools
import json
import socket
import struct
import threading
import time
from concurrent import futures

import grpc
import pytest
from support.server_models import (
    SECONDS,
    closed_gate,
    get,
    refusal,
    serving,
    until,
)
from support.tiers import nightly_unless

from export.server.api import http_server


def test_cors(served, base):
    response, _ = get(served[0], "/v1/models/scale", "OPTIONS")
    assert (response.status, response.getheader("Access-Control-Allow-Methods")) == (200, "POST, GET")
    for path in ("/v1/models/scale", "/v1/models/other"):
        assert get(served[0], path)[0].getheader("Access-Control-Allow-Origin") == "*"
    with serving(base, rest_api_port=0) as (plain, _):
        assert get(plain, "/v1/models/scale")[0].getheader("Access-Control-Allow-Origin") is None
        assert get(plain, "/v1/models/scale", "OPTIONS")[0].status == 400
        assert get(plain, "/metrics")[0].status == 404


DROPPED = 211  # connections; benchmarks/serving opens ten thousand


def test_deadlines(base):
    with serving(base, rest_api_port=0, rest_api_timeout_in_ms=1) as (server, ask), closed_gate() as gate:
        with futures.ThreadPoolExecutor() as pool:
            body = json.dumps({"signature_name": "gate", "instances": [1.0]})
            late = pool.submit(get, server, "/v1/models/scale:predict", "POST", body)
            until(lambda: late.done() or gate.waiting.acquire(blocking=False))  # late before or while it computes
            with pytest.raises(grpc.RpcError) as caught:
                ask.predict([1.0], signature="gate", timeout=0.05)
            assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            gate.opened.set()
            assert late.result(SECONDS)[0].status == 504


def test_requests_that_wait_for_a_thread_are_answered_before_the_end(base):
    body = json.dumps({"signature_name": "gate", "instances": [1.0]})
    with (
        serving(base, rest_api_port=0, rest_api_num_threads=1) as (server, _),
        futures.ThreadPoolExecutor() as pool,
        closed_gate() as gate,
    ):
        asked = [pool.submit(get, server, "/v1/models/scale:predict", "POST", body) for _ in range(4)]
        rest = server._rest._server
        assert gate.waiting.acquire(timeout=SECONDS)  # before it, three may wait and the fourth be on its way
        until(lambda: len(rest.busy.queue) == 3)
        stopped = pool.submit(server.stop, SECONDS)
        until(lambda: rest.stopping)
        gate.opened.set()
        assert [one.result(SECONDS)[0].status for one in asked] == [200] * 4
        stopped.result(SECONDS)


def test_what_comes_after_the_end_began_is_refused_at_once(base):
    body = json.dumps({"signature_name": "gate", "instances": [1.0]})
    with (
        serving(base, rest_api_port=0) as (server, _),
        futures.ThreadPoolExecutor() as pool,
        closed_gate() as gate,
        contextlib.closing(http.client.HTTPConnection("localhost", server.rest_port, timeout=SECONDS)) as kept,
    ):
        kept.request("GET", "/v1/models/scale")
        assert kept.getresponse().read()
        held = pool.submit(get, server, "/v1/models/scale:predict", "POST", body)
        assert gate.waiting.acquire(timeout=SECONDS)
        stopped = pool.submit(server.stop, SECONDS)
        until(lambda: server._rest._server.stopping)
        for method, path in (("GET", "/v1/models/scale"), ("POST", "/v1/models/scale:predict")):
            response, _ = get(server, path, method, body if method == "POST" else None)
            assert (response.status, response.getheader("Connection")) == (503, "close")
        kept.request("POST", "/v1/models/scale:predict", body)
        response = kept.getresponse()
        assert (response.status, response.getheader("Connection")) == (503, "close")
        assert not held.done()
        gate.opened.set()
        assert held.result(SECONDS)[0].status == 200
        stopped.result(SECONDS)
        with pytest.raises(ConnectionRefusedError):
            get(server, "/v1/models/scale")


# Clients that mean no good

HEAD = b"POST /v1/models/scale:predict HTTP/1.1\r\nContent-Length: 99\r\n\r\n"


@pytest.mark.parametrize("sent", nightly_unless(HEAD.__eq__, [b"", b"POST /v1", HEAD]))
def test_those_who_trickle_make_room(base, monkeypatch, sent):
    monkeypatch.setitem(http_server._WAITRESS, "connection_limit", 20)
    for name in ("_HEAD_SECONDS", "_REQUEST_SECONDS"):
        monkeypatch.setattr(http_server, name, 1)
    with serving(base, rest_api_port=0) as (server, _), contextlib.ExitStack() as stack:
        done = threading.Event()
        stack.callback(done.set)
        slow = [socket.create_connection(("localhost", server.rest_port), SECONDS) for _ in range(30)]
        for connection in slow:
            stack.enter_context(connection)

        def trickle():
            for byte in itertools.chain(sent, itertools.cycle(b"a")):
                for connection in slow:
                    with contextlib.suppress(OSError):
                        connection.sendall(bytes([byte]) if sent else b"")
                if done.wait(0.1 if byte == ord("a") else 0):
                    return

        stack.enter_context(futures.ThreadPoolExecutor()).submit(trickle)
        stack.callback(done.set)
        begin = time.monotonic()
        assert get(server, "/v1/models/scale")[0].status == 200
        assert time.monotonic() - begin < SECONDS / 2


@pytest.mark.parametrize("jump", nightly_unless((-86400).__eq__, [-86400, 86400]))
def test_the_clock_may_jump(base, monkeypatch, jump):
    """Slow senders are cut off after a while, and others are not, whatever the time of day."""
    for name in ("_HEAD_SECONDS", "_REQUEST_SECONDS"):
        monkeypatch.setattr(http_server, name, 2)
    wall_clock = time.time
    with serving(base, rest_api_port=0) as (server, _), contextlib.ExitStack() as stack:
        kept = stack.enter_context(contextlib.closing(http.client.HTTPConnection("localhost", server.rest_port)))
        kept.request("GET", "/v1/models/scale")
        kept.getresponse().read()
        slow = stack.enter_context(socket.create_connection(("localhost", server.rest_port), SECONDS))
        slow.sendall(b"POST /v1")
        begin = time.monotonic()
        monkeypatch.setattr(time, "time", lambda: wall_clock() + jump)
        assert slow.recv(1) == b""
        assert 1 < time.monotonic() - begin < SECONDS / 2
        kept.sock.sendall(b"GET /v1/models/scale HTTP/1.1\r\nHost: a\r\n\r\n")
        assert kept.sock.recv(9) == b"HTTP/1.1 "


def test_truncated_frames_and_garbage(served, ask):
    garbage = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x09\x00",
    ]
    for port in (served[0].port, served[0].rest_port):
        for data in garbage:
            with socket.create_connection(("localhost", port), SECONDS) as connection:
                connection.sendall(data)
    raw = ask.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    assert refusal(raw, b"\xff\xff\xff")[0] == "INTERNAL"
    assert refusal(ask.channel.unary_unary("/tensorflow.serving.PredictionService/Nothing"), b"")[0] == "UNIMPLEMENTED"
    assert ask.predict([1.0]) == [2.0]
    response, content = get(served[0], "/v1/models/scale:predict", "POST", '{"instances": [1.0], "x"')
    assert (response.status, "JSON Parse error" in content) == (400, True)


def test_dropped_connections(served, ask):
    for port in (served[0].port, served[0].rest_port):
        for _ in range(DROPPED):
            connection = socket.create_connection(("localhost", port), SECONDS)
            # Reset instead of the polite goodbye, in the midst of a request.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(b"POST /v1/models/scale:predict HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
            connection.close()
    assert ask.predict([1.0]) == [2.0]
    body = json.dumps({"instances": [1.0]})
    answer = json.loads(get(served[0], "/v1/models/scale:predict", "POST", body)[1])
    assert answer == {"predictions": [{"rows": 2.0, "y": 2.0}]}


def test_slow_readers_and_writers_hold_up_nobody(base):
    body = json.dumps({"signature_name": "inverse", "inputs": [1.5] * 90_000}).encode()
    head = b"POST /v1/models/scale:predict HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
    with serving(base, rest_api_port=0, rest_api_num_threads=1, max_request_rows=90_000) as (server, _):
        readers, writers = ([socket.socket() for _ in range(number)] for number in (3, 20))
        for connection in readers + writers:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # so that the answer cannot wait there
            connection.connect(("localhost", server.rest_port))
        for reader in readers:
            reader.sendall(head % len(body) + body)
        for writer in writers:
            writer.sendall(head % 1000 + b"{")
        response, _ = get(server, "/v1/models/scale:predict", "POST", json.dumps({"instances": [1.0]}))
        assert response.status == 200
        assert [reader.recv(12) for reader in readers] == [b"HTTP/1.1 200"] * len(readers)
        for connection in readers + writers:
            connection.close()
