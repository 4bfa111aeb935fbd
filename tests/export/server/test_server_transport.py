"""What carries the requests: health, reflection, TLS, sockets, metrics, CORS, limits, and clients that mean no good."""

import http.client
import json
import logging
import os
import socket
import struct
import subprocess
import sys
from concurrent import futures
from dataclasses import replace

import grpc
import numpy as np
import pytest
from google.protobuf import text_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from support import server_tls as tls
from support.server_models import (
    SECONDS,
    Asker,
    classify_request,
    closed_gate,
    publish,
    question,
    record,
    refusal,
    serving,
    until,
)

from export.serve import read_settings
from export.server import ModelServer, ServingError, Settings, config_files, logs
from export.server.api import services

DROPPED = 500  # connections; benchmarks/serving opens ten thousand


@pytest.fixture(scope="module")
def base(scale_models, tmp_path_factory):
    base = tmp_path_factory.mktemp("transport")
    publish(scale_models[2], base / "1")
    record(base / "1", question())
    return base


@pytest.fixture(scope="module")
def served(base):
    """A server with everything on, and how to ask it."""
    file = base / "monitoring.pbtxt"
    file.write_text('prometheus_config { enable: true path: "/metrics" }')
    settings = {"rest_api_enable_cors_support": True, "enable_grpc_healthcheck_service": True}
    with serving(base, rest_api_port=0, monitoring_config_file=str(file), **settings) as both:
        yield both


@pytest.fixture(scope="module")
def ask(served):
    return served[1]


def get(server, path, method="GET", body=None, headers=None):
    connection = http.client.HTTPConnection("localhost", server.rest_port, timeout=SECONDS)
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    content = response.read().decode()
    connection.close()
    return response, content


# Services beside the official ones


def health(channel, service=""):
    stub = health_pb2_grpc.HealthStub(channel)
    return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=SECONDS).status


def test_health(served, base, ask):
    for service in ("", "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"):
        assert health(ask.channel, service) == health_pb2.HealthCheckResponse.SERVING
    with serving(base) as (_, plain), pytest.raises(grpc.RpcError) as caught:
        health(plain.channel)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED, "off unless asked for, as in the stock server"


def test_health_waits_behind_no_request(base):
    settings = {"enable_grpc_healthcheck_service": True, "grpc_max_threads": 1}
    with serving(base, **settings) as (_, ask), closed_gate() as gate:
        held = ask.prediction.Predict.future(question(signature="gate"), timeout=SECONDS)
        assert gate.waiting.acquire(timeout=SECONDS)
        assert health(ask.channel) == health_pb2.HealthCheckResponse.SERVING
        watch = health_pb2_grpc.HealthStub(ask.channel).Watch(health_pb2.HealthCheckRequest(), timeout=SECONDS)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        assert not held.done()
        gate.opened.set()
        assert list(held.result().outputs["y"].float_val) == [2.0]


def test_reflection(ask):
    stub = reflection_pb2_grpc.ServerReflectionStub(ask.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=SECONDS)
    names = {service.name for service in answer.list_services_response.service}
    assert {"tensorflow.serving.PredictionService", "tensorflow.serving.ModelService", "grpc.health.v1.Health"} <= names


def metric(server, name, *labels):
    """Returns the sum of what the page of metrics has under a name and labels."""
    lines = get(server, "/metrics")[1].splitlines()
    return sum(
        float(line.split()[-1]) for line in lines if line.startswith(f"{name}{{") and all(x in line for x in labels)
    )


def test_metrics_have_the_stock_names(served, ask):
    def read(name, *labels):
        return metric(served[0], name, *labels)

    ask.predict([1.0])
    refusal(ask.prediction.Predict, question(signature="nowhere"))
    ask.prediction.Classify(classify_request(1.0, 2.0))
    count = ":tensorflow:serving:request_count"
    before = read(count, 'model_name="scale"', 'status="OK"')
    ask.predict([1.0])
    assert read(count, 'model_name="scale"', 'status="OK"') == before + 1
    assert read(count, 'model_name="scale"', 'status="FAILED_PRECONDITION"') >= 1
    refusal(ask.prediction.Predict, question(name="a name that nobody serves"))
    page, latency = get(served[0], "/metrics")[1], ":tensorflow:serving:request_latency"
    assert "a name that nobody serves" not in page, "or else names could fill the memory"
    assert f"# TYPE {count} counter" in page
    assert f"# TYPE {latency} histogram" in page
    assert read(f"{latency}_count", 'API="Predict"', 'entrypoint="GRPC"') >= 2
    assert 'API="Predict",entrypoint="GRPC",le="10.0"' in page
    assert read(":tensorflow:serving:runtime_latency_sum", 'API="Predict"', 'runtime="TF1"') > 0
    assert read(":tensorflow:serving:request_example_count_total", 'model="scale"') >= 2
    assert read(":tensorflow:serving:model_warmup_latency_count", 'status="OK"') == 1


def test_metrics_count_every_request_over_rest_once(served):
    def counts():
        serving, scale = ":tensorflow:serving", 'model_name="scale"'
        return [
            metric(served[0], f"{serving}:{name}", *labels)
            for name, *labels in (
                ("request_latency_count", scale, 'API="predict"', 'entrypoint="REST"'),
                ("request_latency_count", scale, 'API=""', 'entrypoint="REST"'),
                ("request_latency_count", scale, 'API="Predict"', 'entrypoint="REST"'),
                ("runtime_latency_count", scale, 'API="Predict"'),
                ("request_count", scale, 'status="OK"'),
                ("request_count", scale, 'status="INVALID_ARGUMENT"'),
                ("request_count", 'model_name="unknown"', 'status="INVALID_ARGUMENT"'),
                ("request_count", 'model_name="unknown"', 'status="NOT_FOUND"'),
            )
        ]

    before = counts()
    get(served[0], "/v1/models/scale:predict", "POST", '{"instances": [1.0]}')
    get(served[0], "/v1/models/scale:predict", "POST", "{")
    for path in ("models/scale", "models/scale/metadata", "nowhere", "models/other"):
        get(served[0], f"/v1/{path}")
    assert [after - count for after, count in zip(counts(), before, strict=True)] == [1, 2, 0, 1, 3, 1, 1, 1]


def test_cors(served, base):
    response, _ = get(served[0], "/v1/models/scale", "OPTIONS")
    assert (response.status, response.getheader("Access-Control-Allow-Methods")) == (200, "POST, GET")
    for path in ("/v1/models/scale", "/v1/models/other"):
        assert get(served[0], path)[0].getheader("Access-Control-Allow-Origin") == "*"
    with serving(base, rest_api_port=0) as (plain, _):
        assert get(plain, "/v1/models/scale")[0].getheader("Access-Control-Allow-Origin") is None
        assert get(plain, "/v1/models/scale", "OPTIONS")[0].status == 400
        assert get(plain, "/metrics")[0].status == 404


# Where it listens


def ssl_config(path, **fields):
    config = config_files.message_class("SSLConfig")(**fields)
    path.write_text(text_format.MessageToString(config))
    return str(path)


def ask_over_tls(server, **credentials):
    with grpc.secure_channel(f"localhost:{server.port}", grpc.ssl_channel_credentials(**credentials)) as channel:
        return Asker(channel).predict([1.0])


def test_tls_and_mutual_tls(base, tmp_path):
    pair = {"server_key": tls.SERVER_KEY, "server_cert": tls.SERVER_CERTIFICATE}
    trust = {"root_certificates": tls.AUTHORITY.encode()}
    me = {"private_key": tls.CLIENT_KEY.encode(), "certificate_chain": tls.CLIENT_CERTIFICATE.encode()}
    with serving(base, ssl_config_file=ssl_config(tmp_path / "ssl", **pair)) as (server, plain):
        assert ask_over_tls(server, **trust) == [2.0]
        assert refusal(plain.prediction.Predict, question())[0] == "UNAVAILABLE"
    mutual = ssl_config(tmp_path / "mutual", **pair, custom_ca=tls.AUTHORITY, client_verify=True)
    with serving(base, ssl_config_file=mutual) as (server, _):
        assert ask_over_tls(server, **trust, **me) == [2.0]
        with pytest.raises(grpc.RpcError) as caught:
            ask_over_tls(server, **trust)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"server_key": "k"}, "server_key and server_cert are needed"),
        ({"server_key": "k", "server_cert": "c"}, "are no PEM pair"),
        ({"server_key": "k", "server_cert": "c", "client_verify": True}, "client_verify needs a custom_ca"),
        (
            {
                "server_key": tls.SERVER_KEY,
                "server_cert": tls.SERVER_CERTIFICATE,
                "custom_ca": "a",
                "client_verify": True,
            },
            "or custom_ca is no PEM text",
        ),
    ],
)
def test_bad_tls(base, tmp_path, fields, message):
    settings = Settings(port=0, model_base_path=str(base), ssl_config_file=ssl_config(tmp_path / "ssl", **fields))
    for places in ({}, {"grpc_socket_path": str(tmp_path / "socket")}):
        with pytest.raises(ServingError, match=message):
            ModelServer(replace(settings, **places))


def test_unix_socket(base, tmp_path):
    path = tmp_path / "socket"
    with serving(base, grpc_socket_path=str(path)) as (server, _):
        assert server.port is None
        with grpc.insecure_channel(f"unix:{path}") as channel:
            assert Asker(channel).predict([1.0]) == [2.0]
    with pytest.raises(ServingError, match="--grpc_socket_path .* cannot be listened on"):
        ModelServer(Settings(port=0, model_base_path=str(base), grpc_socket_path=str(tmp_path / "no" / "socket")))


def test_the_unix_socket_wants_the_same_certificates_as_the_port(base, tmp_path):
    path = tmp_path / "socket"
    pair = {"server_key": tls.SERVER_KEY, "server_cert": tls.SERVER_CERTIFICATE}
    file = ssl_config(tmp_path / "ssl", **pair, custom_ca=tls.AUTHORITY, client_verify=True)
    trust = {"root_certificates": tls.AUTHORITY.encode()}
    me = {"private_key": tls.CLIENT_KEY.encode(), "certificate_chain": tls.CLIENT_CERTIFICATE.encode()}
    with serving(base, ssl_config_file=file, grpc_socket_path=str(path)):
        with grpc.insecure_channel(f"unix:{path}") as channel:
            assert refusal(Asker(channel).prediction.Predict, question())[0] == "UNAVAILABLE"
        for credentials, answers in (({**trust, **me}, True), (trust, False)):
            options = [("grpc.ssl_target_name_override", "localhost")]
            keys = grpc.ssl_channel_credentials(**credentials)
            with grpc.secure_channel(f"unix:{path}", keys, options) as channel:
                if answers:
                    assert Asker(channel).predict([1.0]) == [2.0]
                else:
                    assert refusal(Asker(channel).prediction.Predict, question())[0] == "UNAVAILABLE"


# Limits


def test_message_size_is_limited_on_request(base):
    with serving(base, grpc_channel_arguments="grpc.max_receive_message_length=1000") as (_, ask):
        code, details = refusal(ask.prediction.Predict, question(np.zeros(1000)))
        assert code == "RESOURCE_EXHAUSTED"
        assert "larger than max" in details
        assert ask.predict([1.0]) == [2.0]


def test_the_queue_of_calls_is_bounded(base):
    with serving(base, grpc_max_threads=2, max_queued_requests=3) as (_, ask), closed_gate() as gate:
        held = [ask.prediction.Predict.future(question(signature="gate"), timeout=SECONDS) for _ in range(2)]
        for _ in held:
            assert gate.waiting.acquire(timeout=SECONDS)
        cancelled = ask.prediction.Predict.future(question(signature="gate"), timeout=SECONDS)
        until(lambda: refusal(ask.prediction.Predict, question())[0] == "RESOURCE_EXHAUSTED")
        cancelled.cancel()
        # One connection keeps the order: when this is refused, the server knows of the call that is cancelled.
        assert refusal(ask.prediction.Predict, question())[0] == "RESOURCE_EXHAUSTED"
        gate.opened.set()
        for one in held:
            assert list(one.result().outputs["y"].float_val) == [2.0]
        assert ask.predict([1.0]) == [2.0]
        assert not gate.waiting.acquire(blocking=False), "a cancelled call is not computed"


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
        until(lambda: len(rest.task_dispatcher.queue) == 3)
        stopped = pool.submit(server.stop, SECONDS)
        until(lambda: not rest.accepting)
        gate.opened.set()
        assert [one.result(SECONDS)[0].status for one in asked] == [200] * 4
        stopped.result(SECONDS)


# Clients that mean no good


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
    with serving(base, rest_api_port=0, rest_api_num_threads=1) as (server, _):
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


# Logs


@pytest.fixture
def logged(capsys):
    """Has logs written as the command has them at a level; gives a function that returns what they say of requests."""
    loggers = [logging.getLogger(name) for name in ("", "export.server", "waitress.queue")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]

    def requests():
        return [event for event in map(json.loads, capsys.readouterr().err.splitlines()) if event["event"] == "request"]

    yield requests
    for logger, (logger.handlers, logger.propagate, level) in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.mark.parametrize("level", ["warning", "error", "info"])
def test_logs_say_nothing_of_what_users_wrote_unless_asked(base, logged, level):
    secret = question([0.0], signature="inverse", more="my secret")
    logs.write_to_stderr(level)
    for flags, count, shown in (
        ([], 0, False),
        (["--log_requests"], 2, False),
        (["--log_contents"], 1, True),
        (["--log_requests", "--log_contents"], 2, True),
    ):
        settings = read_settings(["--model_base_path=x", *flags])
        with serving(base, log_requests=settings.log_requests, log_contents=settings.log_contents) as (_, ask):
            ask.predict([1.0])
            refusal(ask.prediction.Predict, secret)
        entries = logged()
        assert [entry["status"] for entry in entries] == ["OK", "INVALID_ARGUMENT"][2 - count :]
        assert ("my secret" in str(entries)) is shown


HANDSHAKE = """
import socket, sys
from export import serve
from export.server.api.grpc_server import GrpcServer
from export.server import Settings
server = GrpcServer(None, Settings(port=0, host="localhost", ssl_config_file=sys.argv[1]))
server.start()
with socket.create_connection(("localhost", server.port), 20) as connection:
    connection.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
    while connection.recv(1000):
        pass
server.stop(0)
"""


@pytest.mark.parametrize(("verbosity", "wordy"), [({}, False), ({"GRPC_VERBOSITY": "INFO"}, True)])
def test_a_handshake_that_fails_does_not_break_the_log(tmp_path, verbosity, wordy):
    """What gRPC's C++ side writes is no JSON, and comes only if the environment asks for it."""
    file = ssl_config(tmp_path / "ssl", server_key=tls.SERVER_KEY, server_cert=tls.SERVER_CERTIFICATE)
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"} | verbosity
    command = [sys.executable, "-c", HANDSHAKE, file]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert ("Handshake failed" in result.stderr) is wordy
    assert (result.stderr == "") is not wordy


def test_an_internal_failure_is_answered_and_logged_without_the_request(served, ask, caplog, capfd, monkeypatch):
    secret = "my secret"
    # Handlers of other tests, whose files are closed, would complain about that along with the exception.
    monkeypatch.setattr(logging, "raiseExceptions", False)

    def broken(*_):
        raise KeyError(secret)

    monkeypatch.setitem(services._INFERENCE, "Predict", broken)
    code, details = refusal(ask.prediction.Predict, question())
    assert (code, details) == ("INTERNAL", "Internal error; the server's log has the details.")
    (entry,) = [entry for entry in caplog.records if entry.getMessage() == "request_broke"]
    assert entry.fields["kind"] == "KeyError"
    assert "in broken" in entry.fields["where"]
    assert secret not in caplog.text + str(entry.fields) + "".join(capfd.readouterr())
