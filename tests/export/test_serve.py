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
from export.server import WITHOUT_EFFECT, ServingError, Settings
from export.server.settings import channel_arguments
from export.wire.tensors import to_proto
from zoo.cli import run_command

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
        assert notice == "tensorflow_model_server is not on the PATH; the embedded server stands in for it\n"
        assert ignored == "without effect in the embedded server: --enable_profiler, --num_load_threads\n"
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
    status = run_command(serve.main, list(flags))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return status, lines[0]


def test_command_without_a_model(tmp_path, capsys):
    status, line = failure(capsys, f"--model_base_path={tmp_path / 'nowhere'}")
    assert (status, "--model_base_path must be a directory" in line, "nowhere" in line) == (2, True, True)
    (tmp_path / "latest").mkdir()
    status, line = failure(capsys, f"--model_base_path={tmp_path}")
    assert status == 2
    assert line.startswith(f"error: No versions found under {tmp_path}.")


def test_command_with_a_port_in_use(toy_base, capsys):
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, line = failure(capsys, f"--model_base_path={toy_base}", f"--port={port}")
        assert (status, line.startswith(f"error: --port {port} cannot be listened on")) == (2, True)
        status, line = failure(capsys, f"--model_base_path={toy_base}", "--port=0", f"--rest_api_port={port}")
        assert (status, line.startswith(f"error: --rest_api_port {port} cannot be listened on")) == (2, True)


@pytest.mark.nightly
def test_command_with_a_broken_model(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"not a model")
    process = start("--port=0", f"--model_base_path={tmp_path}")
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert errors.startswith(f"error: {tmp_path / '1'} cannot be loaded as a SavedModel: ")
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--model_base_path or --model_config_file is required"),
        (["--model_base_path=x", "--enable_batching=maybe"], "expected true or false. Received: 'maybe'"),
        (["--model_base_path=x", "--batching_parameters_file=y"], "of no use without --enable_batching"),
        (["--model_base_path=x", "--log_level=loud"], "--log_level is debug, info, warning or error"),
        (["--model_base_path=x", "--port=http"], "a port is a number from 0 to 65535. Received: 'http'"),
        (["--model_base_path=x", "--enable_everything"], "unrecognized arguments: --enable_everything"),
        # TensorFlow aborts, gRPC raises, REST never answers, every call is refused.
        (
            ["--model_base_path=x", "--tensorflow_session_parallelism=-1"],
            "--tensorflow_session_parallelism must be 0 to 10000. Received: -1",
        ),
        (["--model_base_path=x", "--grpc_max_threads=0"], "--grpc_max_threads must be 1 to 10000. Received: 0"),
        (["--model_base_path=x", "--rest_api_num_threads=0"], "--rest_api_num_threads must be 1 to 10000. Received: 0"),
        (["--model_base_path=x", "--max_queued_requests=0"], "--max_queued_requests must be 1 to 2147483647"),
        (["--model_base_path=x", "--drain_seconds=nan"], "--drain_seconds must be 0 to 2147483647. Received: nan"),
    ],
)
def test_command_usage(flags, message, capsys):
    with pytest.raises(SystemExit) as caught:
        serve.main(flags)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


NUMBERS = [item for item in fields(Settings) if item.metadata["parse"] in (int, float)]


@pytest.mark.parametrize("item", NUMBERS, ids=lambda item: item.name)
def test_every_number_has_a_range(item, capsys):
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
    own = {item.name for item in fields(Settings) if item.metadata["own"]}
    meant = {item.name for item in fields(Settings)} - own
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
    assert errors == "left out, as tensorflow_model_server has no such flag: --log_requests\n"
    path = f"--model_base_path={Path('models/m').absolute()}"
    expected = ["--port=8500", path, "--enable_batching=true", "--brand_new=1", *numbers, "oneDNN=0"]
    assert sorted(output.split()) == sorted(expected)


def settings_of(*flags):
    return serve.read_settings(["--model_base_path=x", *flags])


def test_flags_are_spelled_as_the_stock_server_takes_them():
    for flags in (
        ["--enable_batching"],
        ["--enable_batching=true"],
        ["--enable_batching=1"],
        ["--enable_batching=TRUE"],
    ):
        assert settings_of(*flags).enable_batching
    assert not settings_of("--enable_model_warmup=false").enable_model_warmup
    assert settings_of("--port=1", "--rest_api_timeout_in_ms", "50") == Settings(
        model_base_path="x", port=1, rest_api_timeout_in_ms=50
    )
    assert settings_of(*(f"--{name}=1" for name in WITHOUT_EFFECT)) == Settings(model_base_path="x")
    assert channel_arguments("grpc.a=5,grpc.b=c=d") == {"grpc.a": 5, "grpc.b": "c=d"}
    with pytest.raises(ServingError, match="takes name=value, with commas between. Received: 'grpc.a'"):
        channel_arguments("grpc.a")
    with pytest.raises(ServingError, match="takes numbers up to 2147483647. Received: 'grpc.a=3000000000'"):
        channel_arguments("grpc.a=3000000000")


def test_command_shows_its_version(capsys):
    assert run_command(serve.main, ["--version"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("TensorFlow ModelServer: embedded")
    assert second.startswith("TensorFlow Library: 2.")


def test_messages_need_no_tensorflow_and_are_the_ones_it_uses():
    code = (
        "import sys; from export.wire.protos import tensor_pb2; import export.serve;"
        "print('tensorflow' in sys.modules);"
        "import tensorflow as tf; print(type(tf.make_tensor_proto([1])) is tensor_pb2.TensorProto)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True"]


def test_files_stay_small():
    for path in Path(serve.__file__).parent.glob("server/**/*.py"):
        assert len(path.read_text().splitlines()) < 300, path


@pytest.mark.nightly
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
