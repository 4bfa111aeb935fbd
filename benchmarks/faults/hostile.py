"""Random requests by hypothesis, over gRPC and REST."""

import http.client
import json
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import grpc
import hypothesis
from hypothesis import strategies

from benchmarks.faults.served import SECONDS, TEXT, Attacked, attacked, classifier
from benchmarks.faults.table import Attempt, Stage
from benchmarks.serving.protocol import METHOD, MODEL, predict_request
from benchmarks.serving.server import HOST
from export.wire.protos import classification_pb2, predict_pb2, tensor_pb2
from export.wire.tensors import to_array

# The statuses of a wrong request; any other is a fault of the server.
_REFUSALS = set("INVALID_ARGUMENT FAILED_PRECONDITION NOT_FOUND UNIMPLEMENTED OUT_OF_RANGE RESOURCE_EXHAUSTED".split())
_STATUSES = {200, 400, 404, 405, 411, 413, 414, 415, 417, 429, 431, 501}
_REST_OF_IT = b"\r\n\r\n" + b"x" * 10_000 + b"\r\n\r\n"  # completes a request that was cut off
_NO_MESSAGE = "Exception deserializing request!"
_METHODS = [METHOD, *(METHOD.replace("Predict", name) for name in ("Classify", "Regress", "MultiInference"))]
_METHODS += [METHOD.replace("Predict", "GetModelMetadata"), "/tensorflow.serving.ModelService/GetModelStatus"]

_sizes = strategies.sampled_from([0, 1, 1, 1, 2, 3, 256, 257, 1 << 18, 1 << 31, 1 << 62, -1])
_texts = strategies.one_of(
    strategies.just(TEXT.encode()), strategies.binary(max_size=40), strategies.text().map(str.encode)
)
_names = strategies.one_of(strategies.sampled_from(["text", "inputs", "", "x"]), strategies.text(max_size=5))
_signatures = strategies.one_of(
    strategies.sampled_from(["", "serving_default", "classify", "embed", "attention", "__saved_model_init_op"]), _names
)


@strategies.composite
def _tensors(draw: strategies.DrawFn) -> tensor_pb2.TensorProto:
    tensor = tensor_pb2.TensorProto(
        dtype=draw(strategies.sampled_from([7, 7, 7, 1, 3, 9, 10, 0, 14, 21, 23, 107, 9999]))
    )
    tensor.tensor_shape.unknown_rank = draw(strategies.integers(0, 9)) == 0
    many = strategies.integers(5, 300).map(lambda rank: [1] * rank)
    for size in draw(strategies.lists(_sizes, max_size=4) | strategies.just([1]) | many):
        tensor.tensor_shape.dim.add(size=size)
    tensor.string_val.extend(draw(strategies.lists(_texts, max_size=3)))
    tensor.float_val.extend(draw(strategies.lists(strategies.floats(width=32), max_size=2)))
    tensor.int_val.extend(draw(strategies.lists(strategies.integers(-(1 << 31), (1 << 31) - 1), max_size=2)))
    tensor.tensor_content = draw(strategies.just(b"") | strategies.binary(max_size=20))
    return tensor


@strategies.composite
def _predictions(draw: strategies.DrawFn) -> bytes:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = draw(strategies.sampled_from([MODEL, MODEL, MODEL, "", "nobody"]))
    request.model_spec.signature_name = draw(_signatures)
    for name in draw(strategies.just(["text"]) | strategies.lists(_names, max_size=3)):
        request.inputs[name].CopyFrom(draw(_tensors()))
    request.output_filter.extend(draw(strategies.just([]) | strategies.lists(_names, max_size=2)))
    if draw(strategies.integers(0, 9)) == 0:
        request.model_spec.version.value = draw(strategies.integers(-1, 3))
    return request.SerializeToString()


@strategies.composite
def _classifications(draw: strategies.DrawFn) -> bytes:
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name, request.model_spec.signature_name = MODEL, draw(_signatures)
    examples = request.input.example_list.examples
    if draw(strategies.booleans()):
        examples = request.input.example_list_with_context.examples
    for name in draw(strategies.lists(_names, max_size=3)):
        feature = examples.add().features.feature[name]
        feature.bytes_list.value.extend(draw(strategies.lists(_texts, max_size=2)))
        if draw(strategies.integers(0, 3)) == 0:
            feature.float_list.value.append(1.0)
    return request.SerializeToString()


@strategies.composite
def _damaged(draw: strategies.DrawFn, whole: strategies.SearchStrategy[bytes]) -> bytes:
    """Draws a message, half of the time with a few bytes changed, removed or added."""
    content = bytearray(draw(whole))
    for _ in range(draw(strategies.sampled_from([0, 0, 0, 1, 2, 5]))):
        at = draw(strategies.integers(0, len(content)))
        content[at : at + draw(strategies.integers(0, 3))] = draw(strategies.binary(max_size=3))
    return bytes(content)


_messages = strategies.tuples(
    strategies.sampled_from([METHOD, *_METHODS]), _damaged(_predictions() | _classifications())
)

_values = strategies.recursive(
    strategies.one_of(
        strategies.just(TEXT), strategies.none(), strategies.booleans(), strategies.integers(), strategies.floats(),
        strategies.text(max_size=10), strategies.builds(lambda text: {"b64": text}, strategies.text(max_size=8)),
    ),
    lambda inner: strategies.lists(inner, max_size=4) | strategies.dictionaries(_names, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
_keys = strategies.sampled_from(["instances", "inputs", "examples", "context", "signature_name", "other"])


def _nested(depth: int) -> dict[str, Any]:
    value: Any = TEXT
    for _ in range(depth):
        value = [value]
    return {"instances": value}


_documents = strategies.one_of(
    strategies.builds(lambda value: {"instances": value}, _values),
    strategies.builds(lambda value, name: {"inputs": value, "signature_name": name}, _values, _signatures),
    strategies.builds(_nested, strategies.integers(5, 300)),
    strategies.dictionaries(_keys, _values, max_size=3),
    _values,
).map(lambda value: json.dumps(value).encode())


@strategies.composite
def _http(draw: strategies.DrawFn) -> bytes:
    """Draws an HTTP request as bytes, most of which are valid."""
    body = draw(_damaged(_documents))
    verb = draw(strategies.sampled_from(["POST"] * 6 + ["GET", "PUT", "HEAD", "OPTIONS", "post", "PRI", "", "X" * 200]))
    paths = [f"/v1/models/{MODEL}:{method}" for method in ("predict", "predict", "predict", "classify", "regress")]
    paths += [
        f"/v1/models/{MODEL}",
        f"/v1/models/{MODEL}/metadata",
        f"/v1/models/{MODEL}/versions/{1 << 70}",
        "/v1",
        "*",
    ]
    paths += [
        "/v1/models/%ff%00:predict",
        "http://other/v1/models",
        "/" + "a" * 9000,
        "/v1/models/" + "%F0%9F%98%80" * 99,
    ]
    version = draw(strategies.sampled_from(["HTTP/1.1"] * 6 + ["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "", "http"]))
    right = f"Content-Length: {len(body)}"
    lengths = [right] * 8 + ["Content-Length: -1", "Content-Length: 0x10", f"{right}\r\n{right}", f"{right}0", "X: y"]
    lengths += [
        "Transfer-Encoding: chunked",
        f"Transfer-Encoding: gzip\r\n{right}",
        f"Transfer-Encoding: chunked\r\n{right}",
    ]
    extra = draw(
        strategies.sampled_from(
            ["Host: x"] * 6
            + [
                "Content-Encoding: gzip",
                "Expect: 100-continue",
                "Expect: 200-nonsense",
                "X: " + "y" * 300_000,
                "no header",
            ]
            + ["Content-Type: \xff", "Connection: close", "Connection: upgrade\r\nUpgrade: h2c", " folded: header"]
        )
    )
    path, length = draw(strategies.sampled_from(paths)), draw(strategies.sampled_from(lengths))
    head = f"{verb} {path} {version}\r\n{length}\r\n{extra}"
    chunked = f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
    return draw(_damaged(strategies.just(f"{head}\r\n\r\n".encode("latin-1")))) + draw(
        strategies.sampled_from([body, body, body, chunked, body + b"GET / HTTP/1.1\r\n\r\n", body[:-1]])
    )


def over_grpc(stage: Stage) -> Iterator[Attempt]:
    """Sends messages to all methods, well-formed and not."""
    with attacked(classifier(stage)) as server, server.channel() as channel:

        def problem(request: tuple[str, bytes]) -> str:
            method, message = request
            try:
                channel.unary_unary(method)(message, timeout=SECONDS)
            except grpc.RpcError as error:
                unreadable = error.code() is grpc.StatusCode.INTERNAL and error.details() == _NO_MESSAGE
                return "" if unreadable or error.code().name in _REFUSALS else f"{error.code().name}: {error.details()}"
            return ""

        yield from _send(stage, server, _messages, problem)


def over_rest(stage: Stage) -> Iterator[Attempt]:
    """Sends HTTP requests, well-formed and not."""
    with attacked(classifier(stage)) as server:

        def problem(request: bytes) -> str:
            with socket.create_connection((HOST, server.rest_port), timeout=SECONDS) as connection:
                with suppress(ConnectionError):  # the server may close the connection before it has read all
                    connection.sendall(request)
                    if not select.select([connection], [], [], 0.2)[0]:
                        connection.sendall(_REST_OF_IT)
                return _problem_of(connection)

        yield from _send(stage, server, _http(), problem)


def _problem_of(connection: socket.socket) -> str:
    """Returns the problem of the first response on a connection; a closed connection is none."""
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
    except (http.client.HTTPException, ConnectionResetError):
        return ""
    except TimeoutError:
        return f"no answer within {SECONDS} s"
    return "" if response.status in _STATUSES else f"{response.status}: {response.fp.read1(500)!r}"


def _send(
    stage: Stage, server: Attacked, requests: strategies.SearchStrategy[Any], problem: Callable[[Any], str]
) -> Iterator[Attempt]:
    """Sends requests until the time ends or one has a problem, and yields the smallest such request."""
    stage.begin()
    held, failure = 0, ""
    memory = server.memory()

    @hypothesis.seed(stage.chance.getrandbits(32))
    @hypothesis.settings(
        max_examples=stage.tries,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(requests)
    def send(request: Any) -> None:
        nonlocal held, failure
        if time.monotonic() > stage.end and held and not failure:
            return  # however slow the machine is, at least one request is sent
        wrong = problem(request)
        if wrong:
            failure = f"{request!r:.500}: {wrong:.500}"
        assert not wrong
        held += not failure

    with suppress(AssertionError, hypothesis.errors.Flaky):
        send()
    yield Attempt(True, "", held, f"{(server.memory() - memory) / 1e6:+.0f} MB")
    if failure:
        yield Attempt(False, failure)
    for wrong in _faults(server):
        yield Attempt(False, wrong)


def _faults(server: Attacked) -> Iterator[str]:
    """Yields the problems of a server after the requests."""
    if server.has_ended:
        yield f"the server has ended: {server.errors()}"
        return
    if "Traceback" in server.errors():
        yield f"a traceback in the log: {server.errors()}"
    try:
        with server.channel() as channel:
            content = channel.unary_unary(METHOD)(predict_request([TEXT]).SerializeToString(), timeout=SECONDS)
    except grpc.RpcError as error:
        yield f"a good request gets {error}"
        return
    if not to_array(predict_pb2.PredictResponse.FromString(content).outputs["label"])[0]:
        yield "a good request gets no label"
