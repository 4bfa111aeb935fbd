"""The serve command, and how a server follows the versions of its model."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent import futures
from pathlib import Path

import numpy as np
import pytest

from export import serve
from export.client import Client
from export.server.protos import get_model_status_pb2, model_pb2
from export.server.versions import ModelVersions
from zoo.cli import run_command
from zoo.errors import InputError

SECONDS = 20
STEPS = np.array(800_000, np.int32)  # a second or two of work for the signature `slow`


class FakeModel:
    def __init__(self, path, version):
        if (path / "broken").exists():
            raise InputError(f"{path} is broken")
        self.version = version


def states(versions):
    name = get_model_status_pb2.ModelVersionStatus.State.Name
    return {version: name(state.state) for version, state in versions.states().items()}


def current(versions):
    return versions.find(model_pb2.ModelSpec(name="m")).version


def test_versions_follow_the_directory(tmp_path, capsys):
    (tmp_path / "2").mkdir()
    (tmp_path / "10-partial").mkdir()
    (tmp_path / "7").write_text("a file, not a version")
    versions = ModelVersions("m", tmp_path, FakeModel)
    assert versions.load_newest() == 2
    (tmp_path / "10").mkdir()
    versions.poll()
    assert current(versions) == 10
    assert states(versions) == {2: "END", 10: "AVAILABLE"}
    assert capsys.readouterr().out == "serving m version 10\n"
    (tmp_path / "10").rmdir()
    versions.poll()
    assert current(versions) == 2, "removing the newest version rolls back"
    shutil.rmtree(tmp_path)
    versions.poll()
    assert current(versions) == 2, "a base path that is gone takes nothing down"


def test_a_broken_version_replaces_nothing_and_is_tried_again_once_it_changes(tmp_path, capsys):
    (tmp_path / "1").mkdir()
    versions = ModelVersions("m", tmp_path, FakeModel)
    versions.load_newest()
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "broken").touch()
    versions.poll()
    versions.poll()
    assert current(versions) == 1
    assert states(versions) == {1: "AVAILABLE", 2: "END"}
    assert capsys.readouterr().err.count("version 2 is left out") == 1
    (tmp_path / "2" / "broken").unlink()
    versions.poll()
    assert current(versions) == 2


def test_a_new_version_takes_over_while_serving(toy_base, tmp_path):
    shutil.copytree(toy_base / "3", tmp_path / "1")
    server = serve.ModelServer("toy", tmp_path, port=0, host="localhost")
    assert server.start() == f"serving toy version 1: gRPC on localhost:{server.port}"
    with Client(f"localhost:{server.port}", "toy", timeout=SECONDS) as client, futures.ThreadPoolExecutor() as pool:
        running = pool.submit(client.run, {"steps": STEPS}, "slow")
        shutil.copytree(toy_base / "3", tmp_path / "partial")
        os.rename(tmp_path / "partial", tmp_path / "2")
        deadline = time.monotonic() + SECONDS
        while server.versions.find(model_pb2.ModelSpec(name="toy")).version != 2:
            assert client.translate(["a"]) == ["A"]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert running.result()["steps"].tolist() == [STEPS]
    server.stop(grace=1.0)


def start(*flags, path=None):
    environment = dict(os.environ, PATH=path or os.environ["PATH"])
    command = [sys.executable, "-m", "export.serve", *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def post_slow(port):
    body = json.dumps({"signature_name": "slow", "inputs": int(STEPS)}).encode()
    with urllib.request.urlopen(f"http://localhost:{port}/v1/models/toy:predict", body, timeout=SECONDS) as response:
        return json.load(response)


def test_command_serves_drains_and_ends_with_0(toy_base):
    process = start("--port=0", "--rest_api_port", "0", "--model_name=toy", f"--model_base_path={toy_base}")
    try:
        notice, ready = process.stdout.readline(), process.stdout.readline()
        assert notice == "tensorflow_model_server is not on the PATH; the embedded server stands in for it\n"
        assert ready.startswith("serving toy version 3: gRPC on 0.0.0.0:")
        port, rest_port = (int(part.split(",")[0]) for part in ready.split("0.0.0.0:")[1:])
        client = Client(f"localhost:{port}", "toy", timeout=SECONDS)
        assert client.predict(["ﬁ"], "normalize")["text"] == "fi", "the ops of TensorFlow Text are there"
        with futures.ThreadPoolExecutor() as pool:
            over_grpc = pool.submit(client.run, {"steps": STEPS}, "slow")
            over_rest = pool.submit(post_slow, rest_port)
            time.sleep(0.2)
            assert not over_grpc.done() and not over_rest.done()
            process.send_signal(signal.SIGTERM)
            assert over_grpc.result()["steps"].tolist() == [STEPS]
            assert over_rest.result() == {"outputs": [STEPS]}
        client.close()
        _, errors = process.communicate(timeout=SECONDS)
        assert (process.returncode, errors) == (0, "")
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
        ([], "required: --model_base_path"),
        (["--model_base_path=x", "--port=http"], "a port is a number from 0 to 65535. Received: 'http'"),
        (["--model_base_path=x", "--enable_everything"], "unrecognized arguments: --enable_everything"),
    ],
)
def test_command_usage(flags, message, capsys):
    with pytest.raises(SystemExit) as caught:
        serve.main(flags)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_command_becomes_the_stock_server_where_there_is_one(tmp_path):
    stock = tmp_path / "tensorflow_model_server"
    stock.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n')
    stock.chmod(0o755)
    flags = ["--port", "8500", "--rest_api_port=8501", "--model_base_path", "/models/m", "--enable_batching=true"]
    process = start(*flags, path=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    output, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (7, "")
    expected = ["--port=8500", "--rest_api_port=8501", "--model_name=default", "--model_base_path=/models/m"]
    assert output.split() == [*expected, "--enable_batching=true"]


def test_messages_need_no_tensorflow_and_are_the_ones_it_uses():
    code = (
        "import sys; from export.server.protos import tensor_pb2; import export.serve;"
        "print('tensorflow' in sys.modules);"
        "import tensorflow as tf; print(type(tf.make_tensor_proto([1])) is tensor_pb2.TensorProto)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True"]


def test_files_stay_small():
    for path in Path(serve.__file__).parent.glob("server/*.py"):
        assert len(path.read_text().splitlines()) < 300, path
