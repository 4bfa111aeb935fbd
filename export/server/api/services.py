"""The methods of the two services, from request message to response message, shared by gRPC and REST."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from grpc import StatusCode

from export.server import logs
from export.server.context import REST, RequestContext
from export.server.errors import RequestError, internal, invalid_argument, not_found
from export.server.inference.examples import classify, multi_inference, regress
from export.server.inference.limits import Limits, count_examples
from export.server.inference.predict import DEFAULT_SIGNATURE, predict
from export.server.metrics import UNKNOWN_MODEL, Metrics
from export.server.settings import ServerSettings
from export.wire.protos import get_model_metadata_pb2 as metadata_pb2
from export.wire.protos import get_model_status_pb2, meta_graph_pb2, model_management_pb2, model_pb2

if TYPE_CHECKING:
    from export.server.models.core import ServerCore

_INFERENCE: dict[str, Callable[..., Any]] = {
    "Predict": predict,
    "Classify": classify,
    "Regress": regress,
    "MultiInference": multi_inference,
}
_LONGEST_LOGGED = 2000


@contextlib.contextmanager
def unforeseen_as_internal() -> Iterator[None]:
    """Converts unexpected exceptions to INTERNAL errors and logs where they were raised."""
    try:
        yield
    except RequestError:
        raise
    except Exception as error:
        logs.request_broke(error)
        raise internal() from error


class Services:
    """The methods of PredictionService and ModelService.

    All raise only `RequestError`, with the status codes of the stock server.

    Attributes:
        limits: The maximum size of requests.
    """

    def __init__(self, core: "ServerCore", metrics: Metrics, settings: ServerSettings):
        self._core = core
        self._metrics = metrics
        self._settings = settings
        self.limits = Limits(settings.max_request_rows, settings.max_request_bytes)

    @unforeseen_as_internal()
    def answer(self, method: str, request: Any, context: RequestContext) -> Any:
        """Returns the response to a request of a method, such as `"Predict"`."""
        if method == "GetModelMetadata":
            return self.get_metadata(request)
        if method == "GetModelStatus":
            return self.get_status(request)
        if method == "HandleReloadConfigRequest":
            return self.reload_config(request)
        return self.infer(method, request, context)

    def infer(self, method: str, request: Any, context: RequestContext) -> Any:
        """Runs Predict, Classify, Regress or MultiInference, and counts and logs the request."""
        begin, status, message, spec = time.monotonic(), StatusCode.OK, "", _spec_of(request)
        try:
            with unforeseen_as_internal():
                context.check()
                self.limits.check_request(request)
                with self._core.use(spec) as model:
                    response = _INFERENCE[method](model, request, context)
                if method != "Predict":
                    self._metrics.examples(spec.name, count_examples(request.input))
                return response
        except RequestError as error:
            status, message = error.code, error.message
            raise
        finally:
            seconds = time.monotonic() - begin
            if context.entrypoint != REST:  # The REST API counts its requests itself, with the time for JSON.
                self.count(spec.name, method, context.entrypoint, status, seconds)
            if status is StatusCode.OK:
                self._metrics.ran(spec.name, method, context.runtime)
            fields = {"model": self._label(spec.name), "api": method, "entrypoint": context.entrypoint}
            self._log(request, status, message, **fields, seconds=round(seconds, 6))

    def signature(self, spec: model_pb2.ModelSpec) -> meta_graph_pb2.SignatureDef:
        """Returns the signature by which the JSON of a request is parsed."""
        with self._core.use(spec) as model:
            name = spec.signature_name or DEFAULT_SIGNATURE
            if name not in model.signatures:
                raise invalid_argument(f'Serving signature name: "{name}" not found in signature def')
            return model.signatures[name]

    def get_metadata(self, request: Any) -> Any:
        """Implements `PredictionService.GetModelMetadata`; the only supported field is `signature_def`."""
        spec = _spec_of(request)
        if not request.metadata_field:
            raise invalid_argument("GetModelMetadataRequest must specify at least one metadata_field")
        for field in request.metadata_field:
            if field != "signature_def":
                raise invalid_argument(f"Metadata field {field} is not supported")
        response = metadata_pb2.GetModelMetadataResponse()
        with self._core.use(spec) as model:
            signatures = metadata_pb2.SignatureDefMap(signature_def=model.all_signatures)
            response.model_spec.name = spec.name
            response.model_spec.version.value = model.version
        response.metadata["signature_def"].Pack(signatures)
        return response

    def get_status(self, request: Any) -> Any:
        """Implements `ModelService.GetModelStatus`, for one version or for all known ones; labels are ignored."""
        spec = _spec_of(request)
        states = self._core.states(spec.name)
        if spec.WhichOneof("version_choice") == "version":
            version = spec.version.value
            if version not in states:
                raise not_found(f"Could not find version {version} of model {spec.name}")
            states = {version: states[version]}
        path_error = self._core.path_error(spec.name)
        if not states:
            reason = f": {path_error}" if path_error else ""
            raise not_found(f"Could not find any versions of model {spec.name}{reason}")
        response = get_model_status_pb2.GetModelStatusResponse()
        for version, state in states.items():
            entry = response.model_version_status.add(version=version, state=state.state)
            entry.status.error_code = state.code.value[0]
            entry.status.error_message = state.error
            if path_error and not state.error:
                entry.status.error_code, entry.status.error_message = StatusCode.NOT_FOUND.value[0], path_error
        return response

    def reload_config(self, request: Any) -> Any:
        """Implements `ModelService.HandleReloadConfigRequest`."""
        try:
            self._core.reload(request.config)
        except RequestError as error:
            logs.error("config_refused", error=error.message)
            raise
        return model_management_pb2.ReloadConfigResponse()

    def count(self, model: str, api: str, entrypoint: str, status: StatusCode, seconds: float) -> None:
        """Counts a request under its model's name, or under `UNKNOWN_MODEL`."""
        self._metrics.answered(self._label(model), api, entrypoint, status, seconds)

    def _label(self, model: str) -> str:
        return model if self._core.serves(model) else UNKNOWN_MODEL

    def _log(self, request: Any, status: StatusCode, message: str, **fields: Any) -> None:
        contents = {}
        if self._settings.log_contents and status is not StatusCode.OK:
            contents = {"error": message, "request": str(request)[:_LONGEST_LOGGED]}
        if self._settings.log_requests or contents:
            logs.request(**fields, status=status.name, bytes=request.ByteSize(), **contents)


def _spec_of(request: Any) -> model_pb2.ModelSpec:
    if hasattr(request, "tasks"):  # of MultiInference, whose tasks are for one model
        return request.tasks[0].model_spec if request.tasks else model_pb2.ModelSpec()
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    return request.model_spec
