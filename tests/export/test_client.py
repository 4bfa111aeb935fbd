"""The client class and command against a running server."""

import io
import json
import os
import socket
import subprocess
import sys

import grpc
import numpy as np
import pytest

from export import client as client_module
from export.client import Client, RequestRefused
from export.client.api import BATCH_SIZE, MAX_TIMEOUT
from zoo.errors import InputError


@pytest.fixture(scope="module")
def address(toy_server):
    return f"localhost:{toy_server.port}"


@pytest.fixture
def client(address):
    with Client(address, model="toy") as client:
        yield client


@pytest.fixture
def command(address, capsys, monkeypatch):
    """Runs the command in this process; returns its status, output and errors."""

    def run(*arguments, stdin=b"", model="toy", server=address):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = client_module.command(["--server", server, "--model", model, "--retries=0", *arguments])
        output = capsys.readouterr()
        return status, output.out, output.err

    return run


# The class


def test_translate_and_predict(client):
    assert client.translate(["ein", "Maß", ""]) == ["EIN", "MAß", ""]
    outputs = client.predict(inputs={"text": ["ein", b"\xff"]})
    assert outputs["text"].tolist() == ["EIN", "\ufffd"]
    np.testing.assert_allclose(outputs["log_prob"], [-0.3, -0.1], rtol=1e-6)
    assert outputs["log_prob"].dtype == np.float32
    assert client.translate([]) == []


@pytest.mark.parametrize("x", [np.array([[1, 0, 0]], np.float32), [[1.0, 0.0, 0.0]]], ids=["array", "list"])
def test_predict_asks_any_signature(client, x):
    outputs = client.predict("multiply", {"x": x}, outputs=["y"])
    assert {name: array.tolist() for name, array in outputs.items()} == {"y": [[1.0, 2.0]]}


def test_attention_comes_without_padding(client):
    first, second = client.attention(["añ", "日本語"])
    assert (first.text, first.source_tokens, first.target_tokens) == ("Añ", ["a", "ñ"], ["A", "ñ"])
    assert (first.attention.shape, second.attention.shape) == ((2, 3, 2, 2), (2, 3, 3, 3))
    np.testing.assert_array_equal(second.attention[1, 2], np.eye(3))


def test_refusals_carry_the_status_code(client, address):
    with pytest.raises(RequestRefused, match='FAILED_PRECONDITION: Serving signature key "nope" not found.') as caught:
        client.predict("nope", {"text": ["a"]})
    assert caught.value.code == grpc.StatusCode.FAILED_PRECONDITION
    with pytest.raises(RequestRefused, match="NOT_FOUND: Servable not found for request: Latest\\(other\\)"):
        Client(address, model="other").translate(["a"])
    with Client(address, model="toy", timeout=0.05) as hasty, pytest.raises(RequestRefused, match=r"within 0\.05 s"):
        hasty.predict("slow", {"steps": 300_000})


def test_a_single_text_is_no_list(client):
    with pytest.raises(InputError, match="put it into a list"):
        client.translate("ein")


@pytest.mark.parametrize("server", ["localhost", "localhost:http", ":8500", "", "localhost:0", "localhost:65536"])
def test_address(server):
    with pytest.raises(InputError, match="HOST:PORT"):
        Client(server, model="toy")


@pytest.mark.parametrize("timeout", [0.0, -1.0, 1e20, float("inf"), float("nan")])
def test_timeouts_that_are_none(timeout):
    with pytest.raises(InputError, match="`timeout` must be positive, at most"):
        Client("localhost:1", timeout=timeout)


def test_the_longest_timeout(address):
    with Client(address, model="toy", timeout=MAX_TIMEOUT) as client:
        assert client.translate(["ein"]) == ["EIN"]


# The command


def test_texts_from_arguments(command):
    assert command("ein", "Maß") == (0, "EIN\nMAß\n", "")


def test_texts_from_standard_input(command):
    stdin = "ein\r\n\nMaß\u2028x\nzwei".encode()
    assert command(stdin=stdin) == (0, "EIN\n\nMAß\u2028X\nZWEI\n", "")
    assert command() == (0, "", "")


def test_more_lines_than_one_request_takes(command):
    count = 2 * BATCH_SIZE + 1
    status, output, _ = command(stdin=b"".join(b"line %d\n" % number for number in range(count)))
    assert output.splitlines() == [f"LINE {number}" for number in range(count)]
    assert status == 0


def test_scores(command):
    assert command("--scores", "ein", "Maß") == (0, "EIN\t-0.3000\nMAß\t-0.4000\n", "")
    status, output, errors = command("--scores", "--signature=attention", "ein")
    assert (status, output) == (2, "")
    assert "gives no log_prob for --scores" in errors


def test_other_signatures_print_json_lines(command):
    assert command("--signature=number", "1.5", "0.2") == (0, '{"number": 1.5}\n{"number": 0.2}\n', "")
    status, output, _ = command("--signature=normalize", "ein", "Maß")
    rows = [json.loads(line) for line in output.splitlines()]
    assert rows == [{"text": text, "classes": ["a", "b", "c"]} for text in ("ein", "Maß")]


def test_attention_prints_the_text_and_draws(command, tmp_path):
    assert command("--signature=attention", "ein") == (0, "EIN\n", "")
    assert command(f"--heatmap={tmp_path / 'one.png'}", "ein") == (0, "EIN\n", "")
    assert command(f"--heatmap={tmp_path / 'many.png'}", stdin="ein\nвода\n".encode()) == (0, "EIN\nвода\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many-1.png", "many-2.png", "one.png"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--signature=nope", "a"], 'FAILED_PRECONDITION: Serving signature key "nope" not found.'),
        (["--signature=add", "a"], "Missing but required: {a,b}"),
        (["--heatmap=/dev/null/a.png", "a"], "/dev/null/a.png cannot be written"),
        (["--heatmap=a.xyz", "a"], "A picture needs a suffix among"),
    ],
)
def test_errors_are_one_line(command, arguments, message):
    status, _, errors = command(*arguments)
    assert (status, errors.count("\n"), errors.startswith("error: ")) == (2, 1, True)
    assert message in errors


@pytest.mark.parametrize(
    ("closed", "status", "message"),
    [
        ("<&-", 2, "error: There are no texts: none among the arguments, and standard input is closed.\n"),
        (">&-", 2, "error: Standard output is closed, and the answers have nowhere else to go.\n"),
        ("2>&-", 0, ""),
    ],
    ids=["input", "output", "errors"],
)
def test_closed_streams(address, closed, status, message):
    line = f'exec "{sys.executable}" -m export.client --server={address} --model=toy {closed}'
    result = subprocess.run(line, shell=True, input="ein", capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (status, message)
    assert result.stdout == ("" if status else "EIN\n")


def test_unreachable_server(command):
    with socket.socket() as unused:
        unused.bind(("localhost", 0))
        server = f"localhost:{unused.getsockname()[1]}"
        status, output, errors = command("a", server=server)
    assert (status, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(f"error: No server answers at {server} (")


def test_a_server_without_tls(address):
    """What gRPC itself writes of the handshake would stand around the one line."""
    command = [sys.executable, "-m", "export.client", f"--server={address}", "--model=toy", "--retries=0", "--tls", "a"]
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith(f"error: No server answers at {address} (")
    assert "WRONG_VERSION_NUMBER" in result.stderr


def test_unknown_model(command):
    status, _, errors = command("a", model="other")
    assert (status, errors.count("\n")) == (2, 1)
    assert "NOT_FOUND: Servable not found for request: Latest(other)" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a"], "the following arguments are required: --model"),
        (["--model=m", "--heatmap=a.png", "--signature=nbest"], "--heatmap needs --signature attention"),
        (["--model=m", "--timeout=0"], "--timeout must be positive"),
        (["--model=m", "--timeout=inf"], "--timeout must be positive, at most 1e+08. Received: inf"),
        (["--model=m", "--retries=5"], "--retries must be 0 to 4"),
        (["--model=m", "--tls_cert=client.pem"], "--tls_cert and --tls_key go together"),
    ],
)
def test_usage(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        client_module.main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_the_command_needs_no_tensorflow(address):
    code = (
        "import sys; from export import client;"
        f"status = client.command(['--server={address}', '--model=toy']);"
        "print('tensorflow' in sys.modules, 'matplotlib' in sys.modules, status)"
    )
    result = subprocess.run([sys.executable, "-c", code], input=b"ein\n", capture_output=True, check=True)
    assert result.stdout.decode() == "EIN\nFalse False 0\n"
    assert result.stderr == b""
