"""The client against a server whose every answer is scripted: retries, encryption, many requests, failures."""

import contextlib
import io
import os
import pty
import subprocess
import sys
import termios
import threading
from concurrent import futures

import grpc
import numpy as np
import pytest
from support import server_tls

from export import client as client_module
from export.client import Client, RequestRefused, ServerError, Tls
from export.client.api import BATCH_SIZE, IN_FLIGHT
from export.wire.protos import predict_pb2, prediction_service_pb2_grpc
from export.wire.tensors import to_array, to_proto
from zoo.errors import InputError

SECONDS = 60


class Scripted(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Shouts back; `before` is called with each request and its context, and may end it."""

    def __init__(self):
        self.before = lambda request, context: None
        self.requests = []

    def Predict(self, request, context):
        self.requests.append(request)
        self.before(request, context)
        texts = to_array(request.inputs["text"])
        response = predict_pb2.PredictResponse()
        for name, values in {
            "text": [text.upper() for text in texts],
            "label": [b"b"] * len(texts),
            "classes": [[b"a", b"b"]] * len(texts),
            "probabilities": np.tile(np.float32([0.25, 0.75]), (len(texts), 1)),
        }.items():
            if name in request.output_filter or (name == "text" and not request.output_filter):
                response.outputs[name].CopyFrom(to_proto(np.asarray(values)))
        return response


@contextlib.contextmanager
def serving(service, credentials=None, port=0):
    server = grpc.server(futures.ThreadPoolExecutor(2 * IN_FLIGHT))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    address = f"localhost:{port}"
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    server.start()
    try:
        yield f"localhost:{port}"
    finally:
        server.stop(0).wait()


@pytest.fixture
def service():
    return Scripted()


@pytest.fixture
def address(service):
    with serving(service) as address:
        yield address


@pytest.fixture
def client(address):
    with Client(address, timeout=SECONDS) as client:
        yield client


def run_command(capsys, monkeypatch, arguments, stdin=b""):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    status = client_module.command(arguments)
    output = capsys.readouterr()
    return status, output.out, output.err


# Tasks


def test_a_model_needs_no_name(client, service):
    assert client.translate(["ein"]) == ["EIN"]
    assert service.requests[0].model_spec.name == "default"


def test_classify(client, service):
    answers = client.classify(["x", "y"])
    assert answers == [client_module.Classification("b", {"a": 0.25, "b": 0.75})] * 2
    assert sorted(service.requests[0].output_filter) == ["classes", "label", "probabilities"]


def test_generate_asks_for_the_default_or_a_draw(client, service):
    assert client.generate(["ein"]) == ["EIN"]
    assert client.generate(["ein"], temperature=0.5, top_p=0.9, seed=7) == ["EIN"]
    default, draw = service.requests
    assert (default.model_spec.signature_name, set(default.inputs)) == ("serving_default", {"text"})
    assert draw.model_spec.signature_name == "sample"
    values = {name: to_array(proto) for name, proto in draw.inputs.items() if name != "text"}
    assert {name: (array.dtype.name, array.shape) for name, array in values.items()} == {
        "seed": ("int32", ()),
        "temperature": ("float32", ()),
        "top_p": ("float32", ()),
    }
    assert values["seed"] == 7


def test_an_output_that_the_model_does_not_have(client, service):
    service.before = lambda request, _: request.ClearField("output_filter") or request.output_filter.append("label")
    with pytest.raises(InputError, match=r"The model gives no text, only \['label'\]"):
        client.translate(["a"])


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (["a\0", b"\xff"], "object", (2,)),
        ("a", "object", ()),
        ([1, 2], "int32", (2,)),
        (0.5, "float32", ()),
        (np.float64(0.5), "float64", ()),
        ([True], "bool", (1,)),
    ],
)
def test_types_of_inputs(client, service, value, dtype, shape):
    client.predict(inputs={"text": ["a"], "other": value})
    sent = to_array(service.requests[0].inputs["other"])
    assert (sent.dtype.name, sent.shape) == (dtype, shape)
    if shape == (2,) and dtype == "object":
        assert sent.tolist() == [b"a\0", b"\xff"]


@pytest.mark.parametrize("value", [[["a"], ["b", "c"]], [1j], [None]])
def test_inputs_that_no_tensor_can_hold(client, value):
    with pytest.raises(InputError, match="The input 'x' cannot be sent"):
        client.predict(inputs={"x": value})


# Many requests


def test_long_inputs_go_in_several_requests_and_come_back_in_order(client, service):
    others = threading.Event()

    def hold_the_first(request, _):
        if len(service.requests) == IN_FLIGHT:
            others.set()
        if to_array(request.inputs["text"])[0] == b"line 0":
            assert others.wait(SECONDS), "only one request at a time"

    service.before = hold_the_first
    texts = [f"line {number}" for number in range(2 * IN_FLIGHT * BATCH_SIZE + 1)]
    assert client.translate(iter(texts)) == [text.upper() for text in texts]
    assert sorted({len(to_array(request.inputs["text"])) for request in service.requests}) == [1, BATCH_SIZE]


def test_a_stream_draws_no_more_than_it_needs(client):
    drawn = []

    def requests():
        for number in range(100):
            drawn.append(number)
            yield {"text": [str(number)]}

    stream = client.stream(requests(), in_flight=3)
    assert next(stream)["text"].tolist() == ["0"]
    assert drawn == [0, 1, 2]
    stream.close()


def test_a_pause_lets_the_answers_out(client):
    before_the_pause = {"text": ["a"]}
    heard = []

    def requests():
        yield before_the_pause
        yield None
        assert heard == [["A"]], "the answer is out before the stream waits for more"
        yield {"text": ["b"]}

    for answer in client.stream(requests()):
        heard.append(answer["text"].tolist())
    assert heard == [["A"], ["B"]]


def test_an_error_cancels_what_is_under_way(client, service):
    arrived, cancelled = threading.Semaphore(0), threading.Semaphore(0)

    def fail_the_first(request, context):
        if to_array(request.inputs["text"])[0] == b"0":
            assert arrived.acquire(timeout=SECONDS) and arrived.acquire(timeout=SECONDS)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")
        ended = threading.Event()
        context.add_callback(ended.set)
        context.add_callback(cancelled.release)
        arrived.release()
        assert ended.wait(SECONDS)

    service.before = fail_the_first
    with pytest.raises(RequestRefused, match="INVALID_ARGUMENT: no"):
        list(client.stream({"text": [str(number)]} for number in range(3)))
    for _ in range(2):
        assert cancelled.acquire(timeout=SECONDS / 10)


# Retries


def test_unavailable_is_asked_again(client, service):
    def refuse_twice(_, context):
        if len(service.requests) < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "starting")

    service.before = refuse_twice
    assert client.translate(["a"]) == ["A"]
    assert len(service.requests) == 3


def test_a_large_request_is_asked_again_too(client, service):
    service.before = lambda _, context: len(service.requests) > 1 or context.abort(grpc.StatusCode.UNAVAILABLE, "")
    assert client.translate(["x" * 1_000_000]) == ["X" * 1_000_000]


def test_nothing_else_is_asked_again(client, service):
    service.before = lambda _, context: context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
    with pytest.raises(RequestRefused, match="RESOURCE_EXHAUSTED: full"):
        client.translate(["a"])
    assert len(service.requests) == 1


def test_retries_can_be_switched_off(address, service):
    service.before = lambda _, context: context.abort(grpc.StatusCode.UNAVAILABLE, "starting")
    with Client(address, retries=0) as client, pytest.raises(RequestRefused, match=r"No server answers.*\(starting\)"):
        client.translate(["a"])
    assert len(service.requests) == 1
    with pytest.raises(InputError, match="0 to 4 times. Received: retries=5"):
        Client(address, retries=5)


def test_a_server_that_comes_back_is_found(service):
    with serving(service) as address:
        port = address.rpartition(":")[2]
    with Client(address, timeout=SECONDS) as client:
        first = client.stream([{"text": ["a"]}, None])
        with futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(next, first)
            with pytest.raises(futures.TimeoutError):
                answer.result(timeout=0.1)  # it has not given up
            with serving(service, port=port):
                assert answer.result(SECONDS)["text"].tolist() == ["A"]


# Encryption


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    """PEM files of an authority, of a server for the name localhost, and of a client."""
    folder = tmp_path_factory.mktemp("pems")
    for name, text in {
        "ca.pem": server_tls.AUTHORITY,
        "localhost.pem": server_tls.SERVER_CERTIFICATE,
        "localhost.key": server_tls.SERVER_KEY,
        "client.pem": server_tls.CLIENT_CERTIFICATE,
        "client.key": server_tls.CLIENT_KEY,
    }.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module", params=[False, True], ids=["tls", "mutual"])
def secure(pems, request):
    """The address of an encrypted server, and whether it asks for the client's certificate."""
    pair = (pems / "localhost.key").read_bytes(), (pems / "localhost.pem").read_bytes()
    credentials = grpc.ssl_server_credentials([pair], (pems / "ca.pem").read_bytes(), request.param)
    with serving(Scripted(), credentials) as address:
        yield address, request.param


def test_encrypted(secure, pems, capsys, monkeypatch):
    address, mutual = secure
    own = {"certificate": pems / "client.pem", "key": pems / "client.key"} if mutual else {}
    with Client(address, tls=Tls(pems / "ca.pem", **own), timeout=SECONDS) as client:
        assert client.translate(["a"]) == ["A"]
    flags = [f"--tls_{name}={path}" for name, path in zip(("cert", "key"), own.values(), strict=False)]
    flags = [f"--server={address}", "--model=m", f"--tls_ca={pems / 'ca.pem'}", *flags, "a"]
    assert run_command(capsys, monkeypatch, flags) == (0, "A\n", "")


def test_who_cannot_prove_who_they_are_is_refused(secure, pems):
    address, mutual = secure
    strangers = [None, Tls(pems / "client.pem"), Tls(pems / "ca.pem", server_name="client.test")]
    strangers += [Tls(pems / "ca.pem")] if mutual else []
    for tls in strangers:
        with Client(address, tls=tls, retries=0, timeout=SECONDS) as client, pytest.raises(RequestRefused) as caught:
            client.translate(["a"])
        assert caught.value.code == grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("content", ["", "junk", server_tls.AUTHORITY[:200], "-----BEGIN CERTIFICATE-----\n"])
def test_pem_files_that_are_none(pems, tmp_path, content):
    junk = tmp_path / "junk.pem"
    junk.write_text(content)
    for tls in (Tls(junk), Tls(certificate=junk, key=pems / "client.key")):
        with pytest.raises(InputError, match=r"junk\.pem holds no certificate in PEM form"):
            Client("localhost:1", tls=tls)
    with pytest.raises(InputError, match=r"junk\.pem holds no private key in PEM form"):
        Client("localhost:1", tls=Tls(certificate=pems / "client.pem", key=junk))


def test_a_key_that_does_not_fit_its_certificate(pems, tmp_path):
    certificate, cut = pems / "client.pem", tmp_path / "cut.key"
    cut.write_text("\n".join(server_tls.CLIENT_KEY.splitlines()[:3]))
    for key, reason in ((pems / "localhost.key", "it belongs to another"), (cut, "it is broken or has a password")):
        with pytest.raises(InputError, match=rf"{key.name} does not fit the certificate .*client\.pem: {reason}"):
            Client("localhost:1", tls=Tls(certificate=certificate, key=key))


def test_pem_files_that_are_missing(pems):
    with pytest.raises(InputError, match=r"nope\.pem cannot be read \(No such file or directory\)"):
        Client("localhost:1", tls=Tls(pems / "nope.pem"))
    with pytest.raises(InputError, match="certificate and its private key go together"):
        Tls(certificate=pems / "client.pem")


# The command


def test_a_failing_server_is_status_1_in_one_line(address, service, capsys, monkeypatch):
    service.before = lambda _, context: context.abort(grpc.StatusCode.INTERNAL, "out of\nwits")
    status, output, errors = run_command(capsys, monkeypatch, [f"--server={address}", "--model=m", "a"])
    assert (status, output) == (1, "")
    assert errors == f"error: The server at {address} failed: INTERNAL: out of wits\n"
    with Client(address) as client, pytest.raises(ServerError) as caught:
        client.translate(["a"])
    assert not isinstance(caught.value, InputError)


def test_standard_input_is_answered_as_it_comes(address):
    """Three lines written one after the other into a pipe: each is answered before the next is written."""
    command = [sys.executable, "-m", "export.client", f"--server={address}", "--model=m"]
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


def test_a_reader_that_has_had_enough(address):
    command = [sys.executable, "-m", "export.client", f"--server={address}", "--model=m"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdout.close()
        process.stdin.write(b"a\n")
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(SECONDS) == 1


def test_the_progress_bar_is_for_a_terminal(address, tmp_path):
    """The bar shows on a terminal while the answers go to a file, and counts the bytes of a file that is the input."""
    (tmp_path / "in.txt").write_bytes(b"line\n" * 200)
    terminal, its_end = pty.openpty()
    os.set_blocking(terminal, False)
    termios.tcsetwinsize(its_end, (24, 100))  # a new one has no width
    command = [sys.executable, "-m", "export.client", f"--server={address}", "--model=m"]
    with open(tmp_path / "in.txt", "rb") as source, open(tmp_path / "out.txt", "wb") as target:
        subprocess.run(command, stdin=source, stdout=target, stderr=its_end, check=True, timeout=SECONDS)
    shown = os.read(terminal, 1 << 16).decode()
    os.close(terminal), os.close(its_end)
    assert "100%" in shown and "1.00k/1.00k" in shown and "200 lines" in shown
    assert (tmp_path / "out.txt").read_bytes() == b"LINE\n" * 200
