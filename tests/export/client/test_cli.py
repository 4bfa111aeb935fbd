"""The client's command, against a running server and a scripted one."""

import json
import os
import pty
import re
import socket
import subprocess
import sys
import termios
import threading

import grpc
import numpy as np
import pytest

from export.client import Client, ServerError, cli
from export.client.api import BATCH_SIZE
from zoo.errors import InputError

SECONDS = 60


@pytest.fixture(scope="module")
def address(toy_server):
    return f"localhost:{toy_server.port}"


@pytest.fixture
def ask_toy(command, address):
    """Runs the command against the toy server, unless told otherwise."""

    def run(*arguments, stdin=b"", model="toy", server=address):
        return command("--server", server, "--model", model, "--retries=0", *arguments, stdin=stdin)

    return run


def test_texts_from_arguments(ask_toy):
    assert ask_toy("ein", "Maß") == (0, "EIN\nMAß\n", "")


def test_texts_from_standard_input(ask_toy):
    stdin = "ein\r\n\nMaß\u2028x\nzwei".encode()
    assert ask_toy(stdin=stdin) == (0, "EIN\n\nMAß\u2028X\nZWEI\n", "")
    assert ask_toy() == (0, "", "")


def test_more_lines_than_one_request_takes(ask_toy):
    count = 2 * BATCH_SIZE + 1
    status, output, _ = ask_toy(stdin=b"".join(b"line %d\n" % number for number in range(count)))
    assert output.splitlines() == [f"LINE {number}" for number in range(count)]
    assert status == 0


def test_an_answer_is_one_line(ask_toy):
    assert ask_toy("a\nb\r\nc", "d") == (0, "A B C\nD\n", "")
    assert ask_toy("--scores", "a\rb") == (0, "A B\t-0.3000\n", "")
    status, output, _ = ask_toy("--json", "a\nb", "d")
    assert status == 0 and [json.loads(line)["text"] for line in output.splitlines()] == ["A\nB", "D"]


def test_scores(ask_toy):
    assert ask_toy("--scores", "ein", "Maß") == (0, "EIN\t-0.3000\nMAß\t-0.4000\n", "")
    status, output, errors = ask_toy("--scores", "--signature=attention", "ein")
    assert (status, output) == (2, "")
    assert "--scores requires the output log_prob" in errors


def test_other_signatures_print_json_lines(ask_toy):
    assert ask_toy("--signature=number", "1.5", "0.2") == (0, '{"number": 1.5}\n{"number": 0.2}\n', "")
    status, output, _ = ask_toy("--signature=normalize", "ein", "Maß")
    rows = [json.loads(line) for line in output.splitlines()]
    assert rows == [{"text": text, "classes": ["a", "b", "c"]} for text in ("ein", "Maß")]


def test_a_request_for_each_text_where_servers_want_the_rest_for_each(scripted_address, service, command):
    stdin = b"".join(b"line %d\n" % number for number in range(5))
    status, output, _ = command(f"--server={scripted_address}", "--model=m", "--signature=attention_all", stdin=stdin)
    assert status == 0
    assert [json.loads(line)["text"] for line in output.splitlines()] == [f"LINE {number}" for number in range(5)]
    assert [list(request.inputs["text"].tensor_shape.dim)[0].size for request in service.requests] == [1] * 5


@pytest.mark.nightly
def test_attention_prints_the_text_and_draws(ask_toy, tmp_path):
    assert ask_toy("--signature=attention", "ein") == (0, "EIN\n", "")
    one, many = (f"--heatmap={tmp_path / name}.png" for name in ("one", "many"))
    assert ask_toy(one, "--layer=-2", "--head=2", "ein") == (0, "EIN\n", "")
    assert ask_toy(many, "--head=all", stdin="ein\nвода\n".encode()) == (0, "EIN\nвода\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many-1.png", "many-2.png", "one.png"]
    assert all(path.stat().st_size > 1000 for path in tmp_path.iterdir())


def test_an_answer_without_tokens_has_no_picture(ask_toy, tmp_path):
    path = tmp_path / "map.png"
    status, output, errors = ask_toy(f"--heatmap={path}", stdin=b"\nein\n")
    assert (status, output, errors.count("\n")) == (0, "\nEIN\n", 1) and str(tmp_path / "map-1.png") in errors
    assert [file.name for file in tmp_path.iterdir()] == ["map-2.png"]


def test_the_attention_of_a_classifier(address, command, tmp_path, monkeypatch):
    """It is between the tokens of the text, and the axes say so."""
    pictures = []
    monkeypatch.setattr("export.heatmap.attention_heatmap", lambda *drawing: pictures.append(drawing))
    arguments = [f"--server={address}", "--model=toy", "--signature=attention", f"--heatmap={tmp_path / 'a.png'}", "ab"]
    monkeypatch.setattr(Client, "stream", lambda client, requests, signature: (CLASSIFIED for _ in requests))
    assert command(*arguments) == (0, '{"tokens": ["a", "b", ""]}\n', "")
    ((sources, targets, weights, _, title, *_, axes),) = pictures
    assert (sources, targets, title, axes) == (["a", "b"], ["a", "b"], "ab", ("attended to", "attending"))
    assert weights.shape == (2, 3, 2, 2)


CLASSIFIED = {"tokens": np.array([["a", "b", ""]], object), "attention": np.ones((1, 2, 3, 3, 3), np.float32)}


def test_errors_are_one_line_before_any_answer(ask_toy):
    for arguments, *words in (
        (["--signature=nope"], "FAILED_PRECONDITION", '"nope"'),
        (["--signature=add"], "{a,b}"),
        (["--heatmap=/dev/null/a.png"], "/dev/null/a.png cannot be written"),
        (["--heatmap=a.xyz"], "suffix"),
        (["--heatmap=a.png", "--layer=2"], "layer=2"),
        (["--heatmap=a.png", "--head=3"], "head=3"),
        (["--timeout=0"], "`timeout`"),
        (["--timeout=inf"], "`timeout`", "1e+08", "timeout=inf"),
        (["--retries=5"], "0 to 4", "retries=5"),
        (["--tls_cert=client.pem"], "certificate", "key"),
    ):
        status, output, errors = ask_toy(*arguments, "a")
        assert (status, output, errors.count("\n"), errors.startswith("error: ")) == (2, "", 1, True)
        assert all(word in errors for word in words), errors
    status, _, errors = ask_toy("a", model="other")
    assert (status, errors.count("\n")) == (2, 1) and "NOT_FOUND" in errors and "Latest(other)" in errors
    with socket.socket() as unused:
        unused.bind(("localhost", 0))
        server = f"localhost:{unused.getsockname()[1]}"
        status, output, errors = ask_toy("a", server=server)
    assert (status, output, errors.count("\n")) == (2, "", 1) and errors.startswith("error: ") and server in errors


@pytest.mark.parametrize(
    ("closed", "status", "word"),
    [
        ("<&-", 2, "standard input"),
        pytest.param(">&-", 2, "Standard output", marks=pytest.mark.nightly),
        pytest.param("2>&-", 0, "", marks=pytest.mark.nightly),
    ],
)
def test_closed_streams(address, closed, status, word):
    line = f'exec "{sys.executable}" -m export.client --server={address} --model=toy {closed}'
    result = subprocess.run(line, shell=True, input="ein", capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (status, "" if status else "EIN\n")
    assert word in result.stderr and result.stderr.count("\n") == (1 if status else 0)


@pytest.mark.nightly
def test_a_server_without_tls(address):
    """What gRPC itself writes of the handshake would stand around the one line."""
    command = [sys.executable, "-m", "export.client", f"--server={address}", "--model=toy", "--retries=0", "--tls", "a"]
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert re.match(f"error: .*{re.escape(address)}", result.stderr)
    assert "WRONG_VERSION_NUMBER" in result.stderr


def test_usage(capsys):
    for arguments, words in (
        (["a"], ["--model"]),
        (["--model=m", "--heatmap=a.png", "--signature=nbest"], ["--heatmap", "--signature attention"]),
        (["--model=m", "--head=x"], ["--head", "'x'"]),
    ):
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        error = capsys.readouterr().err
        assert caught.value.code == 2 and all(word in error for word in words), error


def test_the_command_needs_no_tensorflow(address):
    """Nor does the server's before it loads a model."""
    code = (
        "import sys; from export import client, serve;"
        f"status = client.command(['--server={address}', '--model=toy']);"
        "print('tensorflow' in sys.modules, 'matplotlib' in sys.modules, status)"
    )
    result = subprocess.run([sys.executable, "-c", code], input=b"ein\n", capture_output=True, check=True)
    assert result.stdout.decode() == "EIN\nFalse False 0\n"
    assert result.stderr == b""


def test_a_failing_server_is_status_1_in_one_line(scripted_address, service, command):
    service.before = lambda _, context: context.abort(grpc.StatusCode.INTERNAL, "out of\nwits")
    status, output, errors = command(f"--server={scripted_address}", "--model=m", "a")
    assert (status, output) == (1, "")
    assert errors == f"error: The server at {scripted_address} failed: INTERNAL: out of wits\n"
    with Client(scripted_address) as client, pytest.raises(ServerError) as caught:
        client.translate(["a"])
    assert not isinstance(caught.value, InputError)


def test_standard_input_is_answered_as_it_comes(scripted_address):
    """Three lines written one after the other into a pipe: each is answered before the next is written."""
    command = [sys.executable, "-m", "export.client", f"--server={scripted_address}", "--model=m"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        too_late = threading.Timer(SECONDS, process.kill)
        too_late.start()
        for text in (b"ein\n", b"zwei\ndrei\n"):
            process.stdin.write(text)
            for line in text.splitlines(keepends=True):
                assert process.stdout.readline() == line.upper()
        process.stdin.write(b"unfinished")
        process.stdin.close()
        assert process.stdout.readline() == b"UNFINISHED\n"
        assert process.wait(SECONDS) == 0
        too_late.cancel()


def test_a_reader_that_has_had_enough(scripted_address):
    command = [sys.executable, "-m", "export.client", f"--server={scripted_address}", "--model=m"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdout.close()
        process.stdin.write(b"a\n")
        process.stdin.close()
        said = process.stderr.read()
        assert said.startswith(b"error: broken pipe") and said.count(b"\n") == 1
        assert process.wait(SECONDS) == 1


@pytest.mark.nightly
def test_the_progress_bar_is_for_a_terminal(scripted_address, tmp_path):
    """The bar shows on a terminal while the answers go to a file, and counts the bytes of a file that is the input."""
    (tmp_path / "in.txt").write_bytes(b"line\n" * 200)
    terminal, its_end = pty.openpty()
    os.set_blocking(terminal, False)
    termios.tcsetwinsize(its_end, (24, 100))  # a new one has no width
    command = [sys.executable, "-m", "export.client", f"--server={scripted_address}", "--model=m"]
    with open(tmp_path / "in.txt", "rb") as source, open(tmp_path / "out.txt", "wb") as target:
        subprocess.run(command, stdin=source, stdout=target, stderr=its_end, check=True, timeout=SECONDS)
    shown = os.read(terminal, 1 << 16).decode()
    os.close(terminal), os.close(its_end)
    assert "100%" in shown and "1.00k/1.00k" in shown and "200 lines" in shown
    assert (tmp_path / "out.txt").read_bytes() == b"LINE\n" * 200
