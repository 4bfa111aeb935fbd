"""What carries gRPC requests: health, reflection, TLS, sockets, limits, and logs of failed handshakes."""

import json
import os
import subprocess
import sys
import threading
import time
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
    closed_gate,
    get,
    metric,
    question,
    refusal,
    serving,
    until,
)

from export.server import ModelServer, ServerSettings, ServingError, config_files
from export.server.api import grpc_server

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


def test_bad_tls(base, tmp_path):
    pair = {"server_key": tls.SERVER_KEY, "server_cert": tls.SERVER_CERTIFICATE}
    for fields, message in (
        ({"server_key": "k"}, "server_key and server_cert"),
        ({"server_key": "k", "server_cert": "c"}, "not a PEM"),
        ({"server_key": "k", "server_cert": "c", "client_verify": True}, "client_verify.*custom_ca"),
        ({**pair, "custom_ca": "a", "client_verify": True}, "custom_ca.*not a PEM"),
    ):
        file = ssl_config(tmp_path / "ssl", **fields)
        settings = ServerSettings(port=0, model_base_path=str(base), ssl_config_file=file)
        for places in ({}, {"grpc_socket_path": str(tmp_path / "socket")}):
            with pytest.raises(ServingError, match=f"{file}.*{message}"):
                ModelServer(replace(settings, **places))


def test_unix_socket(base, tmp_path):
    path = tmp_path / "socket"
    with serving(base, grpc_socket_path=str(path)) as (server, _):
        assert server.port is None
        with grpc.insecure_channel(f"unix:{path}") as channel:
            assert Asker(channel).predict([1.0]) == [2.0]
    with pytest.raises(ServingError, match="--grpc_socket_path"):
        ModelServer(ServerSettings(port=0, model_base_path=str(base), grpc_socket_path=str(tmp_path / "no" / "socket")))


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


def test_a_compressed_message_is_limited_as_unpacked(base):
    with serving(base, max_request_bytes=1 << 20) as (_, ask):
        with pytest.raises(grpc.RpcError) as caught:
            ask.prediction.Predict(question(np.zeros(1 << 20)), timeout=SECONDS, compression=grpc.Compression.Gzip)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "Decompressed message larger than max" in caught.value.details()
        assert ask.predict([1.0], timeout=SECONDS) == [2.0]


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


def test_health_and_counts_while_all_else_is_refused(base, tmp_path):
    file = tmp_path / "monitoring"
    file.write_text('prometheus_config { enable: true path: "/metrics" }')
    settings = {"rest_api_port": 0, "monitoring_config_file": str(file), "enable_grpc_healthcheck_service": True}
    settings |= {"grpc_max_threads": 1, "max_queued_requests": 2, "rest_api_num_threads": 1}
    body = json.dumps({"signature_name": "gate", "instances": [1.0]})

    def count(status):
        return metric(server, ":tensorflow:serving:request_count", f'status="{status}"')

    with serving(base, **settings) as (server, ask), futures.ThreadPoolExecutor() as pool, closed_gate() as gate:
        held = ask.prediction.Predict.future(question(signature="gate"), timeout=SECONDS)
        over_rest = pool.submit(get, server, "/v1/models/scale:predict", "POST", body)
        for _ in range(2):
            assert gate.waiting.acquire(timeout=SECONDS)
        late = ask.prediction.Predict.future(question(), timeout=0.5)  # expires before it has a thread
        until(lambda: refusal(ask.prediction.Predict, question())[0] == "RESOURCE_EXHAUSTED")
        assert health(ask.channel) == health_pb2.HealthCheckResponse.SERVING
        until(lambda: count("RESOURCE_EXHAUSTED") >= 1)
        assert get(server, "/v1/models/scale/metadata")[0].status == 200
        assert late.exception(SECONDS).code() == grpc.StatusCode.DEADLINE_EXCEEDED
        gate.opened.set()
        assert list(held.result().outputs["y"].float_val) == [2.0]
        assert over_rest.result(SECONDS)[0].status == 200
        until(lambda: count("DEADLINE_EXCEEDED") == 1)


@pytest.mark.parametrize(
    "patience", [("_PATIENCE", 0.2), pytest.param(("_PATIENCE_WHEN_BUSY", 0.2), marks=pytest.mark.nightly)]
)
def test_messages_that_do_not_come_hold_no_thread(base, monkeypatch, patience):
    monkeypatch.setattr(grpc_server, *patience)
    with serving(base, grpc_max_threads=2) as (_, ask):
        silent, done = ask.channel.stream_unary("/tensorflow.serving.PredictionService/Predict"), threading.Event()

        def nothing():
            done.wait(SECONDS)
            yield b""

        held = [silent.future(nothing(), timeout=SECONDS) for _ in range(9)]
        began = time.monotonic()
        try:
            assert ask.predict([1.0]) == [2.0]
            assert time.monotonic() - began < 9
            assert held[0].exception(SECONDS).code() == grpc.StatusCode.CANCELLED
        finally:
            done.set()


HANDSHAKE = """
import socket, sys
from export import serve
from export.server.api.grpc_server import GrpcServer
from export.server import ServerSettings
server = GrpcServer(None, None, ServerSettings(port=0, host="localhost", ssl_config_file=sys.argv[1]))
server.start()
with socket.create_connection(("localhost", server.port), 20) as connection:
    connection.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
    while connection.recv(1000):
        pass
server.stop(0)
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("verbosity", "wordy"), [({}, False), ({"GRPC_VERBOSITY": "INFO"}, True)])
def test_a_handshake_that_fails_does_not_break_the_log(tmp_path, verbosity, wordy):
    """What gRPC's C++ side writes is no JSON, and comes only if the environment asks for it."""
    file = ssl_config(tmp_path / "ssl", server_key=tls.SERVER_KEY, server_cert=tls.SERVER_CERTIFICATE)
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"} | verbosity
    command = [sys.executable, "-c", HANDSHAKE, file]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert ("Handshake failed" in result.stderr) is wordy
    assert (result.stderr == "") is not wordy
