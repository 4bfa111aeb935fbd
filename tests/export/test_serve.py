"""The serve command: its flags, how it starts, ends, logs and gives way to the stock server."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent import futures
from dataclasses import fields
from pathlib import Path

import grpc
import numpy as np
import pytest
from support.deploy_files import STOCK_FLAGS
from support.server_models import publish, question, refusal
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from export import serve
from export.client import Client
from export.server import WITHOUT_EFFECT, ServerSettings, ServingError
from export.server.settings import channel_arguments
from export.wire.tensors import to_proto
from zoo.runtime.cli import run_command

SECONDS = 60
STEPS = np.array(400_000, np.int32)  # a second of work for the signature `slow`


def start(*flags, path=None):
    environment = dict(os.environ, PATH=path or os.environ["PATH"], TF_CPP_MIN_LOG_LEVEL="3")
    command = [sys.executable, "-m", "export.serve", *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def request(signature, **inputs):
    message = predict_pb2.PredictRequest()
    message.model_spec.name, message.model_spec.signature_name = "toy", signature
    for name, value in inputs.items():
        message.inputs[name].CopyFrom(to_proto(np.array(value)))
    return message


def post_slow(port):
    body = json.dumps({"signature_name": "slow", "inputs": int(STEPS)}).encode()
    with urllib.request.urlopen(f"http://localhost:{port}/v1/models/toy:predict", body, timeout=SECONDS) as response:
        return json.load(response)


def test_command_serves_drains_and_ends_with_0(toy_base, scale_models, tmp_path):
    publish(scale_models[2], tmp_path / "2")
    bases = {"toy": toy_base, "scale": tmp_path}
    one = 'config {{ name: "{}" base_path: "{}" model_platform: "tensorflow" }}'
    entries = (one.format(*both) for both in bases.items())
    (tmp_path / "models.config").write_text(f"model_config_list {{ {' '.join(entries)} }}")
    flags = ["--port=0", "--rest_api_port", "0", f"--model_config_file={tmp_path / 'models.config'}"]
    process = start(
        *flags,
        "--enable_profiler=false",
        "--num_load_threads=3",
        "--log_level=info",
        "--log_requests",
        "--drain_seconds=60",
    )
    try:
        notice, ignored, ready = (process.stdout.readline() for _ in range(3))
        assert "tensorflow_model_server" in notice
        assert "--enable_profiler, --num_load_threads" in ignored
        assert ready.startswith("serving scale version 2, toy version 3: gRPC on 0.0.0.0:")
        port, rest_port = (int(part.split(",")[0]) for part in ready.split("0.0.0.0:")[1:])
        with grpc.insecure_channel(f"localhost:{port}") as channel, futures.ThreadPoolExecutor() as pool:
            ask = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
            text = ask(request("normalize", text=["ﬁ"]), timeout=SECONDS).outputs["text"]
            assert text.string_val[0] == b"fi", "the ops of TensorFlow Text are there"
            code, details = refusal(ask, question(signature="xla"))
            assert (code, details.splitlines()[0]) == ("INTERNAL", "XLA compilation disabled")
            over_grpc = ask.future(request("slow", steps=STEPS), timeout=SECONDS)
            over_rest = pool.submit(post_slow, rest_port)
            time.sleep(0.2)
            assert not over_grpc.done() and not over_rest.done()
            process.send_signal(signal.SIGTERM)
            assert over_grpc.result().outputs["steps"].int_val[0] == STEPS
            assert over_rest.result() == {"outputs": [STEPS]}
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        events = [json.loads(line) for line in errors.splitlines()]
        assert {"version_available", "stopped"} <= {event["event"] for event in events}
        requests = [event for event in events if event["event"] == "request"]
        assert sorted((event["entrypoint"], event["status"]) for event in requests) == [
            ("GRPC", "INTERNAL"),
            ("GRPC", "OK"),
            ("GRPC", "OK"),
            ("REST", "OK"),
        ]
        assert "ﬁ" not in errors
    finally:
        process.kill()


def failure(capsys, *flags):
    """Returns the exit status of the command, and the one line that it says."""
    try:
        status = run_command(serve.main, list(flags))
    except SystemExit as usage:
        status = usage.code
    (line,) = capsys.readouterr().err.splitlines()
    return status, line


def test_command_without_a_model_or_a_port(toy_base, tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (tmp_path / "latest").mkdir()
        for flags, words in (
            ([f"--model_base_path={tmp_path / 'nowhere'}"], ["--model_base_path", "nowhere"]),
            ([f"--model_base_path={tmp_path}"], ["No versions", str(tmp_path)]),
            ([f"--model_base_path={toy_base}", f"--port={port}"], [f"--port {port}"]),
            ([f"--model_base_path={toy_base}", "--port=0", f"--rest_api_port={port}"], [f"--rest_api_port {port}"]),
        ):
            status, line = failure(capsys, *flags)
            assert status == 2 and line.startswith("error: ") and all(word in line for word in words), line


@pytest.mark.nightly
def test_command_with_a_broken_model(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"not a model")
    process = start("--port=0", f"--model_base_path={tmp_path}")
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert errors.startswith(f"error: {tmp_path / '1'} cannot be loaded as a SavedModel: ")
    assert errors.count("\n") == 1


USAGE = [
    ([], ["--model_base_path", "--model_config_file"]),
    (["--enable_batching=maybe"], ["true or false", "'maybe'"]),
    (["--batching_parameters_file=y"], ["--enable_batching"]),
    (["--log_level=loud"], ["--log_level", "debug, info, warning or error"]),
    (["--port=http"], ["0 to 65535", "'http'"]),
    (["--enable_everything"], ["--enable_everything"]),
    # TensorFlow aborts, gRPC raises, REST never answers, every call is refused.
    (["--tensorflow_session_parallelism=-1"], ["--tensorflow_session_parallelism", "0 to 10000", "-1"]),
    (["--grpc_max_threads=0"], ["--grpc_max_threads", "1 to 10000", "0"]),
    (["--rest_api_num_threads=0"], ["--rest_api_num_threads", "1 to 10000", "0"]),
    (["--max_queued_requests=0"], ["--max_queued_requests", "1 to 2147483647"]),
    (["--drain_seconds=nan"], ["--drain_seconds", "0 to 2147483647", "nan"]),
]


def test_command_usage(capsys):
    for flags, words in USAGE:
        status, line = failure(capsys, *(["--model_base_path=x", *flags] if flags else []))
        assert status == 2 and all(word in line for word in words), line


def test_every_number_has_a_range(capsys):
    for item in fields(ServerSettings):
        if item.metadata["parse"] not in (int, float):
            continue
        least, most = item.metadata["within"]
        assert least <= item.default <= most
        for value in (least, most):
            assert getattr(settings_of(f"--{item.name}={value}"), item.name) == value
        for value in (least - 1, most + 1, *(["nan", "inf"] if item.metadata["parse"] is float else [])):
            with pytest.raises(SystemExit) as caught:
                settings_of(f"--{item.name}={value}")
            (line,) = capsys.readouterr().err.splitlines()
            assert (caught.value.code, f"--{item.name} must be" in line) == (2, True)


def test_every_flag_of_the_stock_server_is_known():
    own = {item.name for item in fields(ServerSettings) if item.metadata["own"]}
    meant = {item.name for item in fields(ServerSettings)} - own
    assert set(STOCK_FLAGS) - {"version"} <= meant | WITHOUT_EFFECT
    assert meant <= set(STOCK_FLAGS)
    assert not own & set(STOCK_FLAGS)


def test_command_becomes_the_stock_server_where_there_is_one(tmp_path):
    stock = tmp_path / "tensorflow_model_server"
    stock.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "oneDNN=$TF_ENABLE_ONEDNN_OPTS"\nexit 7\n')
    stock.chmod(0o755)
    flags = ["--port", "8500", "--model_base_path", "models/m", "--enable_batching", "--brand_new=1", "--log_requests"]
    numbers = ["--file_system_poll_wait_seconds=5", "--per_process_gpu_memory_fraction=0.5"]
    process = start(*flags, *numbers, path=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 7
    assert "--log_requests" in errors and errors.count("\n") == 1
    path = f"--model_base_path={Path('models/m').absolute()}"
    expected = ["--port=8500", path, "--enable_batching=true", "--brand_new=1", *numbers, "oneDNN=0"]
    assert sorted(output.split()) == sorted(expected)


def settings_of(*flags):
    return serve.read_settings(["--model_base_path=x", *flags])


def test_flags_are_spelled_as_the_stock_server_takes_them(capsys):
    for flag in ("--enable_batching", "--enable_batching=true", "--enable_batching=1", "--enable_batching=TRUE"):
        assert settings_of(flag).enable_batching
    assert not settings_of("--enable_model_warmup=false").enable_model_warmup
    assert settings_of("--port=1", "--rest_api_timeout_in_ms", "50") == ServerSettings(
        model_base_path="x", port=1, rest_api_timeout_in_ms=50
    )
    assert settings_of(*(f"--{name}=1" for name in WITHOUT_EFFECT)) == ServerSettings(model_base_path="x")
    assert channel_arguments("grpc.a=5,grpc.b=c=d") == {"grpc.a": 5, "grpc.b": "c=d"}
    for wrong, words in (("grpc.a", "name=value.*'grpc.a'"), ("grpc.a=3000000000", "2147483647.*'grpc.a=3000000000'")):
        with pytest.raises(ServingError, match=words):
            channel_arguments(wrong)
    assert run_command(serve.main, ["--version"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("TensorFlow ModelServer: embedded") and second.startswith("TensorFlow Library: 2.")


@pytest.mark.nightly
def test_messages_are_the_ones_that_tensorflow_uses():
    code = (
        "import sys; from export.wire.protos import tensor_pb2; import export.serve;"
        "print('tensorflow' in sys.modules);"
        "import tensorflow as tf; print(type(tf.make_tensor_proto([1])) is tensor_pb2.TensorProto)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True"]


@pytest.mark.weekly
def test_of_three_servers_one_is_killed_and_one_hangs_under_load(toy_base):
    """With retries no request fails; those that hang are answered soon after the ping that was not."""
    flags = ("--port=0", "--rest_api_port=0", "--model_name=toy", f"--model_base_path={toy_base}")
    processes = [start(*flags) for _ in range(3)]
    try:
        lines = [next(line for line in process.stdout if line.startswith("serving")) for process in processes]
        ports = [line.split("gRPC on 0.0.0.0:")[1].split(",")[0] for line in lines]
        server = "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports)
        waits, ended = [], time.monotonic() + 25
        with Client(server, "toy", timeout=SECONDS) as client, futures.ThreadPoolExecutor(4) as pool:

            def load():
                while time.monotonic() < ended:
                    begun = time.monotonic()
                    assert client.predict("normalize", {"text": ["ﬁ"]})["text"].tolist() == ["fi"]
                    waits.append(time.monotonic() - begun)
                    time.sleep(0.01)

            loads = [pool.submit(load) for _ in range(4)]
            time.sleep(3)
            answered = len(waits)
            processes[0].kill()
            processes[1].send_signal(signal.SIGSTOP)
            for each in loads:
                each.result()
        assert answered > 30 and len(waits) > 2 * answered, "there was load, and it went on"
        assert 1 < max(waits) < 25, "some requests were with the server that hangs"
    finally:
        for process in processes:
            process.kill()
            process.communicate()
