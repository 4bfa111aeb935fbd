"""The REST side: TensorFlow Serving's v1 paths over `handlers`, on Werkzeug and waitress."""

import json
import threading
import time
from typing import Any

import waitress
from google.protobuf.json_format import MessageToDict
from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter, Map, Rule
from werkzeug.wrappers import Request, Response

from export.server import handlers, rest_json
from export.server.ports import open_port
from export.server.protos import get_model_metadata_pb2, get_model_status_pb2, model_pb2
from export.server.signatures import DEFAULT_SIGNATURE
from export.server.status import RequestError, invalid_argument
from export.server.versions import ModelVersions

_THREADS = 16


class _ModelName(BaseConverter):
    regex = "[^/:]+"  # a colon starts the method, as in /v1/models/NAME:predict


_MODEL = "/v1/models/<name:name>"
_VERSION = f"{_MODEL}/versions/<int(max={2**63 - 1}):version>"
_METHODS = [("predict", "POST", ":predict"), ("status", "GET", ""), ("metadata", "GET", "/metadata")]
_ROUTES = Map(
    [
        Rule(path + suffix, methods=[method], endpoint=endpoint)
        for path in (_MODEL, _VERSION)
        for endpoint, method, suffix in _METHODS
    ],
    converters={"name": _ModelName},
    merge_slashes=False,
)


class RestApp:
    """The WSGI application.

    Args:
        versions: What to serve.
    """

    def __init__(self, versions: ModelVersions):
        self._versions = versions

    def __call__(self, environ, start_response):
        """Answers one request, as WSGI wants it."""
        request = Request(environ)
        try:
            document, status = self._answer(request), 200
        except RequestError as error:
            document, status = {"error": error.message}, error.http_status
        body = json.dumps(document, ensure_ascii=False, indent=1)
        return Response(body, status, content_type="application/json")(environ, start_response)

    def _answer(self, request: Request) -> dict[str, Any]:
        try:
            endpoint, values = _ROUTES.bind_to_environ(request.environ).match()
        except HTTPException as error:
            # Unknown paths and wrong methods alike: the stock server answers both with 400.
            raise invalid_argument(f"Malformed request: {request.method} {request.path}") from error
        spec = model_pb2.ModelSpec(name=values["name"])
        if "version" in values:
            spec.version.value = values["version"]
        return getattr(self, f"_{endpoint}")(spec, request)

    def _predict(self, spec: model_pb2.ModelSpec, request: Request) -> dict[str, Any]:
        document = _parse(request.get_data())
        name = document.get("signature_name", DEFAULT_SIGNATURE)
        if not isinstance(name, str):
            raise invalid_argument("JSON object not formatted correctly. 'signature_name' key must be a string value.")
        model = self._versions.find(spec)
        if name not in model.signatures:
            raise invalid_argument(f'Serving signature name: "{name}" not found in signature def')
        outputs = model.predict(name, rest_json.read_inputs(document, model.signatures[name]))
        return rest_json.write_outputs(outputs, rows="instances" in document)

    def _status(self, spec: model_pb2.ModelSpec, request: Request) -> dict[str, Any]:
        question = get_model_status_pb2.GetModelStatusRequest(model_spec=spec)
        return _to_dict(handlers.get_status(self._versions, question))

    def _metadata(self, spec: model_pb2.ModelSpec, request: Request) -> dict[str, Any]:
        question = get_model_metadata_pb2.GetModelMetadataRequest(model_spec=spec, metadata_field=["signature_def"])
        answer = handlers.get_metadata(self._versions, question)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        answer.metadata["signature_def"].Unpack(signatures)
        return {"model_spec": _to_dict(answer.model_spec), "metadata": {"signature_def": _to_dict(signatures)}}


def _parse(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid_argument(f"JSON Parse error: {error}") from error
    if not isinstance(document, dict):
        raise invalid_argument("JSON Value is not an object")
    return document


def _to_dict(message) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)


class RestServer:
    """The HTTP server, bound on construction and answering after `start`.

    Args:
        versions: What to serve.
        host: The address to listen on.
        port: The port; 0 picks a free one.

    Attributes:
        port: The port it listens on.

    Raises:
        InputError: The port cannot be had.
    """

    def __init__(self, versions: ModelVersions, host: str, port: int):
        listening = open_port(host, port, "--rest_api_port")
        self._server = waitress.create_server(RestApp(versions), sockets=[listening], threads=_THREADS, ident=None)
        self.port = int(self._server.effective_port)

    def start(self) -> None:
        """Starts to answer."""
        threading.Thread(target=self._server.run, name="rest", daemon=True).start()

    def stop(self, grace: float) -> None:
        """Accepts no more connections and gives requests in progress `grace` seconds."""
        deadline = time.monotonic() + grace
        self._server.accepting = False
        self._server.task_dispatcher.shutdown(timeout=grace)
        # The answers are complete now, but large ones may still be on their way out.
        while self._is_sending() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._server.close()

    def _is_sending(self) -> bool:
        return any(channel.total_outbufs_len for channel in list(self._server.active_channels.values()))
