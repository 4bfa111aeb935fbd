"""The REST side: TensorFlow Serving's v1 paths over `handlers`, on Werkzeug and waitress."""

import json
import re
import threading
import time
import zlib
from typing import Any
from urllib.parse import unquote

import waitress
from google.protobuf.json_format import MessageToDict
from grpc import StatusCode
from werkzeug.wrappers import Request, Response

from export.server import logs, rest_examples, rest_json
from export.server import metrics as prometheus
from export.server.config_files import read_monitoring
from export.server.deadline import REST, Call
from export.server.handlers import Handlers
from export.server.ports import open_port
from export.server.settings import Settings
from export.server.status import RequestError, broken, invalid_argument
from export.wire.protos import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)
from export.wire.tensors import to_array, to_proto

_VERSION = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_ASK = re.compile(rf"/v1/models/(?P<name>[^/:]+){_VERSION}:(?P<method>classify|regress|predict)", re.IGNORECASE)
_LOOK = re.compile(rf"/v1/models(?:/(?P<name>[^/:]+))?{_VERSION}(?:/(?P<method>metadata))?", re.IGNORECASE)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # half a pair of them is no text
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}
_LARGEST_UNPACKED = 1 << 28
# Idle and slow connections cost no thread, only a place; answers that are not fetched are kept on disk.
_SERVER = {
    "connection_limit": 2000,
    "backlog": 2048,
    "channel_timeout": 60,
    "cleanup_interval": 10,
    "channel_request_lookahead": 1,  # lets a handler see that its client has hung up
    "asyncore_use_poll": True,  # `select` fails beyond 1,024 open files
    "outbuf_high_watermark": 1 << 40,  # a slow reader of a large answer would hold its thread
    "ident": None,
}


class RestApp:
    """The WSGI application.

    Args:
        handlers: What answers.
        settings: Time limit, CORS and monitoring.
        metrics: What monitoring shows.

    Raises:
        InputError: The monitoring configuration is wrong.
    """

    def __init__(self, handlers: Handlers, settings: Settings, metrics: prometheus.Metrics):
        self._handlers = handlers
        self._metrics = metrics
        self._seconds = settings.rest_api_timeout_in_ms / 1000
        self._headers = _CORS if settings.rest_api_enable_cors_support else {}
        self._metrics_path = None
        if settings.monitoring_config_file:
            config = read_monitoring(settings.monitoring_config_file).prometheus_config
            self._metrics_path = (config.path or prometheus.DEFAULT_PATH) if config.enable else None

    def __call__(self, environ, start_response):
        """Answers one request, as WSGI wants it."""
        request = Request(environ)
        return self._respond(request)(environ, start_response)

    def _respond(self, request: Request) -> Response:
        if request.path == self._metrics_path:
            return Response(self._metrics.page(), content_type="text/plain")
        if request.method == "OPTIONS" and self._headers:
            return Response("", headers=self._headers)
        if not request.path.lower().startswith("/v1/"):
            return _as_json({"error": f"Not found: {request.path}"}, 404, self._headers)
        begin, found, status = time.monotonic(), _route(request), StatusCode.OK
        try:
            response = _as_json(self._answer(request, found), 200, self._headers)
        except Exception as raised:
            error = _as_request_error(raised)
            status = error.code
            response = _as_json({"error": error.message}, error.http_status, self._headers)
        self._count(found, status, time.monotonic() - begin)
        return response

    def _count(self, found: re.Match | None, status: StatusCode, seconds: float) -> None:
        name = unquote(found["name"] or "") if found is not None else ""
        api = found["method"].lower() if found is not None and found.re is _ASK else ""
        self._handlers.count(name, api, REST, status, seconds)

    def _answer(self, request: Request, found: re.Match | None) -> dict[str, Any]:
        if found is None:
            raise invalid_argument(f"Malformed request: {request.method} {request.path}")
        spec = _spec(found)
        if request.method == "GET":
            return self._metadata(spec) if found["method"] else self._status(spec)
        gone = request.environ.get("waitress.client_disconnected", lambda: False)
        deadline = time.monotonic() + self._seconds if self._seconds > 0 else None
        document = _parse(_body(request))
        spec.signature_name = _signature_name(document)
        answers = {"predict": self._predict, "classify": self._classify, "regress": self._regress}
        return answers[found["method"].lower()](spec, document, Call(REST, deadline, gone))

    def _predict(self, spec: model_pb2.ModelSpec, document: dict[str, Any], call: Call) -> dict[str, Any]:
        signature = self._handlers.input_signature(spec, spec.signature_name)
        inputs = rest_json.read_inputs(document, signature)
        request = predict_pb2.PredictRequest(model_spec=spec)
        for name, array in inputs.items():
            request.inputs[name].CopyFrom(to_proto(array, as_content=True))
        response = self._handlers.predict(request, call)
        outputs = {name: to_array(proto) for name, proto in sorted(response.outputs.items())}
        return rest_json.write_outputs(outputs, rows="instances" in document)

    def _classify(self, spec: model_pb2.ModelSpec, document: dict[str, Any], call: Call) -> dict[str, Any]:
        examples = rest_examples.read_examples(document)
        request = classification_pb2.ClassificationRequest(model_spec=spec, input=examples)
        return rest_examples.write_classes(self._handlers.classify(request, call).result)

    def _regress(self, spec: model_pb2.ModelSpec, document: dict[str, Any], call: Call) -> dict[str, Any]:
        examples = rest_examples.read_examples(document)
        request = regression_pb2.RegressionRequest(model_spec=spec, input=examples)
        return rest_examples.write_values(self._handlers.regress(request, call).result)

    def _status(self, spec: model_pb2.ModelSpec) -> dict[str, Any]:
        question = get_model_status_pb2.GetModelStatusRequest(model_spec=spec)
        return _to_dict(self._handlers.get_status(question, Call(REST)))

    def _metadata(self, spec: model_pb2.ModelSpec) -> dict[str, Any]:
        question = get_model_metadata_pb2.GetModelMetadataRequest(model_spec=spec, metadata_field=["signature_def"])
        answer = self._handlers.get_metadata(question, Call(REST))
        signatures = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(signatures)
        return {"model_spec": _to_dict(answer.model_spec), "metadata": {"signature_def": _to_dict(signatures)}}


def _route(request: Request) -> re.Match | None:
    pattern = {"POST": _ASK, "GET": _LOOK}.get(request.method)
    return pattern.fullmatch(request.path) if pattern is not None else None


def _as_request_error(error: Exception) -> RequestError:
    if isinstance(error, RequestError):
        return error
    logs.broken(error)
    return broken()


def _spec(found: re.Match) -> model_pb2.ModelSpec:
    if not found["name"]:
        raise invalid_argument("Missing model name in request.")
    spec = model_pb2.ModelSpec(name=unquote(found["name"]))
    if found["label"]:
        spec.version_label = unquote(found["label"])
    if found["version"]:
        if int(found["version"]) >= 1 << 63:
            raise invalid_argument(f"Failed to convert version: {found['version']} to numeric.")
        spec.version.value = int(found["version"])
    return spec


def _body(request: Request) -> bytes:
    body = request.get_data()
    if request.headers.get("Content-Encoding", "").lower() != "gzip":
        return body
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # 16: with the header of gzip
    try:
        body = unpacking.decompress(body, _LARGEST_UNPACKED)
    except zlib.error as error:
        raise invalid_argument(f"The body is not in gzip format: {error}") from error
    if unpacking.unconsumed_tail:
        raise RequestError(StatusCode.RESOURCE_EXHAUSTED, f"The body unpacks to more than {_LARGEST_UNPACKED} bytes")
    return body


def _parse(body: bytes) -> dict[str, Any]:
    if not body:
        raise invalid_argument("JSON Parse error: The document is empty")
    try:
        text = body.decode("utf-8-sig")
        document = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise invalid_argument("JSON Parse error: The surrogate pair in string is invalid.") from error
    except (ValueError, RecursionError) as error:
        raise invalid_argument(f"JSON Parse error: {error}") from error
    if not isinstance(document, dict):
        raise invalid_argument(f"JSON Value: {rest_json.quote(document)} Is not object")
    return document


def _signature_name(document: dict[str, Any]) -> str:
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid_argument(
            f"JSON Value: {rest_json.quote(document)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return name


def _as_json(document: dict[str, Any], status: int, headers: dict[str, str]) -> Response:
    body = json.dumps(document, ensure_ascii=False)
    return Response(body, status, headers=headers, content_type="application/json")


def _to_dict(message) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


class RestServer:
    """The HTTP server, bound on construction and answering after `start`.

    Args:
        app: What answers.
        settings: Where to listen and on how many threads.

    Attributes:
        port: The port it listens on.

    Raises:
        InputError: The port cannot be had.
    """

    def __init__(self, app: RestApp, settings: Settings):
        listening = open_port(settings.host, settings.rest_api_port or 0, "--rest_api_port")
        threads = settings.rest_api_num_threads
        self._server = waitress.create_server(app, sockets=[listening], threads=threads, **_SERVER)
        self.port = int(self._server.effective_port)

    def start(self) -> None:
        """Starts to answer."""
        threading.Thread(target=self._server.run, name="rest", daemon=True).start()

    def stop(self, grace: float) -> None:
        """Accepts no more connections and gives requests that are in, in progress or not yet, `grace` seconds."""
        deadline = time.monotonic() + grace
        self._server.accepting = False
        while self._is_busy() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._server.task_dispatcher.shutdown(timeout=max(0.0, deadline - time.monotonic()))  # cancels what waits
        self._server.close()

    def _is_busy(self) -> bool:
        dispatcher = self._server.task_dispatcher
        with dispatcher.lock:
            if dispatcher.queue or dispatcher.active_count:
                return True
        # The answers are complete now, but large ones may still be on their way out.
        return any(channel.total_outbufs_len for channel in list(self._server.active_channels.values()))
