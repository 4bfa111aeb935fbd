"""The REST API: TensorFlow Serving's v1 paths, as a WSGI application on Werkzeug."""

import gzip
import io
import json
import math
import re
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from grpc import StatusCode
from werkzeug.wrappers import Request, Response

from export.server import metrics
from export.server.api import rest_json
from export.server.api.services import Services, unforeseen_as_internal
from export.server.config_files import read_config
from export.server.context import REST, RequestContext
from export.server.errors import RequestError, invalid_argument
from export.server.settings import ServerSettings
from export.wire.protos import classification_pb2, get_model_status_pb2, model_pb2, predict_pb2, regression_pb2
from export.wire.protos import get_model_metadata_pb2 as metadata_pb2
from export.wire.tensors import to_array, to_proto

_VERSION = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_PATHS = {
    "POST": re.compile(rf"/v1/models/(?P<name>[^/:]+){_VERSION}:(?P<method>classify|regress|predict)", re.IGNORECASE),
    "GET": re.compile(rf"/v1/models(?:/(?P<name>[^/:]+))?{_VERSION}(?P<method>/metadata)?", re.IGNORECASE),
}
_HUGE = re.compile(r"\d[eE]\+?\d\d|(?<!\d)\d{290}")  # numbers that may overflow to infinity in Python
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # a lone surrogate is invalid
_CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}
# The table of the stock server (`ToHTTPStatusCode`); codes that are not listed mean 500.
_HTTP_STATUS = {
    StatusCode[name]: status
    for status, names in {
        200: "OK",
        400: "INVALID_ARGUMENT FAILED_PRECONDITION OUT_OF_RANGE",
        401: "UNAUTHENTICATED",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        409: "ALREADY_EXISTS ABORTED",
        429: "RESOURCE_EXHAUSTED",
        499: "CANCELLED",
        501: "UNIMPLEMENTED",
        503: "UNAVAILABLE",
        504: "DEADLINE_EXCEEDED",
    }.items()
    for name in names.split()
}


class RestApp:
    """The WSGI application; raises ServingError if the monitoring configuration is wrong."""

    def __init__(self, services: Services, server_metrics: metrics.Metrics, settings: ServerSettings):
        self._services = services
        self._metrics = server_metrics
        self._seconds = settings.rest_api_timeout_in_ms / 1000
        self._headers = _CORS if settings.rest_api_enable_cors_support else {}
        self._metrics_path = None
        if settings.monitoring_config_file:
            config = read_config("monitoring_config_file", settings.monitoring_config_file).prometheus_config
            self._metrics_path = (config.path or metrics.DEFAULT_PATH) if config.enable else None

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Responds to one request; see WSGI."""
        return self._respond(Request(environ))(environ, start_response)

    def _respond(self, request: Request) -> Response:
        if request.path == self._metrics_path:
            return Response(self._metrics.page(), content_type="text/plain")
        if request.method == "OPTIONS" and self._headers:
            return Response("", headers=self._headers)
        if not request.path.lower().startswith("/v1/"):
            return self._as_json({"error": f"Not found: {request.path}"}, 404)
        begin, status = time.monotonic(), StatusCode.OK
        path = _PATHS[request.method].fullmatch(request.path) if request.method in _PATHS else None
        try:
            with unforeseen_as_internal():
                response = self._as_json(self._answer(request, path))
        except RequestError as error:
            status = error.code
            response = self._as_json({"error": error.message}, _HTTP_STATUS.get(status, 500))
        model = unquote(path["name"] or "") if path else ""
        api = path["method"].lower() if path and request.method == "POST" else ""
        self._services.count(model, api, REST, status, time.monotonic() - begin)
        return response

    def _as_json(self, document: dict[str, Any], status: int = 200) -> Response:
        body = json.dumps(document, ensure_ascii=False)
        return Response(body, status, headers=self._headers, content_type="application/json")

    def _answer(self, request: Request, path: re.Match[str] | None) -> Any:
        if path is None:
            raise invalid_argument(f"Malformed request: {request.method} {request.path}")
        spec = _model_spec(path)
        if request.method == "GET":
            if path["method"]:
                return self._metadata(spec)
            return _to_dict(self._services.get_status(get_model_status_pb2.GetModelStatusRequest(model_spec=spec)))
        is_cancelled = request.environ.get("waitress.client_disconnected", lambda: False)
        deadline = time.monotonic() + self._seconds if self._seconds > 0 else None
        document = _parse(_body(request, self._services.limits.bytes))
        spec.signature_name = _signature_name(document)
        context = RequestContext(REST, deadline, is_cancelled)
        if path["method"].lower() == "predict":
            return self._predict(spec, document, context)
        examples = rest_json.read_examples(document, self._services.limits)
        if path["method"].lower() == "classify":
            classification = classification_pb2.ClassificationRequest(model_spec=spec, input=examples)
            return rest_json.write_classes(self._services.infer("Classify", classification, context).result)
        regression = regression_pb2.RegressionRequest(model_spec=spec, input=examples)
        return rest_json.write_values(self._services.infer("Regress", regression, context).result)

    def _predict(self, spec: model_pb2.ModelSpec, document: dict[str, Any], context: RequestContext) -> dict[str, Any]:
        inputs = rest_json.read_inputs(document, self._services.signature(spec), self._services.limits)
        request = predict_pb2.PredictRequest(model_spec=spec)
        for name, array in inputs.items():
            request.inputs[name].CopyFrom(to_proto(array, as_content=True))
        response = self._services.infer("Predict", request, context)
        outputs = {name: to_array(proto) for name, proto in response.outputs.items()}
        return rest_json.write_outputs(outputs, as_rows="instances" in document)

    def _metadata(self, spec: model_pb2.ModelSpec) -> dict[str, Any]:
        request = metadata_pb2.GetModelMetadataRequest(model_spec=spec, metadata_field=["signature_def"])
        response = self._services.get_metadata(request)
        signatures = metadata_pb2.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        return {"model_spec": _to_dict(response.model_spec), "metadata": {"signature_def": _to_dict(signatures)}}


def _model_spec(path: re.Match[str]) -> model_pb2.ModelSpec:
    if not path["name"]:
        raise invalid_argument("Missing model name in request.")
    spec = model_pb2.ModelSpec(name=unquote(path["name"]))
    if path["label"]:
        spec.version_label = unquote(path["label"])
    if path["version"]:
        if int(path["version"]) >= 1 << 63:
            raise invalid_argument(f"Failed to convert version: {path['version']} to numeric.")
        spec.version.value = int(path["version"])
    return spec


def _body(request: Request, most: int) -> bytes:
    body = request.get_data()
    if request.headers.get("Content-Encoding", "").lower() != "gzip":
        return body
    try:
        body = gzip.GzipFile(fileobj=io.BytesIO(body)).read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise invalid_argument(f"The body is not in gzip format: {error}") from error
    if len(body) > most:
        raise invalid_argument(f"The body unpacks to more than the {most} bytes of --max_request_bytes.")
    return body


def _parse(body: bytes) -> dict[str, Any]:
    if not body:
        raise invalid_argument("JSON Parse error: The document is empty")
    try:
        text = body.decode("utf-8-sig")
        huge = _HUGE.search(text)
        document = json.loads(text, parse_float=_finite, parse_int=_whole) if huge else json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise invalid_argument("JSON Parse error: The surrogate pair in string is invalid.") from error
    except (ValueError, RecursionError) as error:
        raise invalid_argument(f"JSON Parse error: {error}") from error
    if not isinstance(document, dict):
        raise invalid_argument(f"JSON Value: {rest_json.quote(document)} Is not object")
    return document


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError("Number too big to be stored in double.")
    return value


def _whole(number: str) -> int:
    _finite(number)
    return int(number)


def _signature_name(document: dict[str, Any]) -> str:
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        quoted = rest_json.quote(document)
        key = "'signature_name' key must be a string value."
        raise invalid_argument(f"JSON Value: {quoted} not formatted correctly. {key}")
    return name


def _to_dict(message: Message) -> Any:
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
