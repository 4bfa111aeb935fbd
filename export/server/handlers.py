"""Every method of the two services, message in and message out; gRPC and REST both stand on them."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message
from grpc import StatusCode

from export.server import examples, inference, logs
from export.server.catalogue import Catalogue
from export.server.deadline import REST, Call
from export.server.metrics import UNKNOWN_MODEL, Metrics
from export.server.signatures import DEFAULT_SIGNATURE
from export.server.status import RequestError, broken, invalid_argument, not_found
from export.wire.protos import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    meta_graph_pb2,
    model_management_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)

if TYPE_CHECKING:
    from export.server.models import LoadedModel

_Response = TypeVar("_Response")
_LONGEST_LOGGED = 2000


class Handlers:
    """The methods of PredictionService and ModelService.

    All raise `RequestError` with the status code that the stock server gives, and nothing else.

    Args:
        catalogue: The models.
        metrics: Where to count.
        as_content: Whether Predict answers with `tensor_content`.
        log_requests: Whether each request is logged.
        log_contents: Whether what failing requests say is logged, too.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        metrics: Metrics,
        as_content: bool = False,
        log_requests: bool = False,
        log_contents: bool = False,
    ):
        self._catalogue = catalogue
        self._metrics = metrics
        self._as_content = as_content
        self._log_requests = log_requests
        self._log_contents = log_contents

    def predict(self, request: predict_pb2.PredictRequest, call: Call) -> predict_pb2.PredictResponse:
        """Answers `PredictionService.Predict`."""

        def answer(model: "LoadedModel") -> predict_pb2.PredictResponse:
            return inference.predict(model, request, call, self._as_content)

        return self._infer("Predict", _spec_of(request), request, call, answer)

    def classify(
        self, request: classification_pb2.ClassificationRequest, call: Call
    ) -> classification_pb2.ClassificationResponse:
        """Answers `PredictionService.Classify`."""

        def answer(model: "LoadedModel") -> classification_pb2.ClassificationResponse:
            return examples.classify(model, request, call)

        return self._infer("Classify", _spec_of(request), request, call, answer)

    def regress(self, request: regression_pb2.RegressionRequest, call: Call) -> regression_pb2.RegressionResponse:
        """Answers `PredictionService.Regress`."""

        def answer(model: "LoadedModel") -> regression_pb2.RegressionResponse:
            return examples.regress(model, request, call)

        return self._infer("Regress", _spec_of(request), request, call, answer)

    def multi_inference(
        self, request: inference_pb2.MultiInferenceRequest, call: Call
    ) -> inference_pb2.MultiInferenceResponse:
        """Answers `PredictionService.MultiInference`."""

        def answer(model: "LoadedModel") -> inference_pb2.MultiInferenceResponse:
            return examples.multi_inference(model, request, call)

        spec = request.tasks[0].model_spec if request.tasks else model_pb2.ModelSpec()
        return self._infer("MultiInference", spec, request, call, answer)

    def input_signature(self, spec: model_pb2.ModelSpec, name: str) -> meta_graph_pb2.SignatureDef:
        """Returns the signature that a request in JSON is to be read by."""
        with self._catalogue.use(spec) as servable:
            name = name or DEFAULT_SIGNATURE
            if name not in servable.model.signatures:
                raise invalid_argument(f'Serving signature name: "{name}" not found in signature def')
            return servable.model.signatures[name]

    def get_metadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest, call: Call
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """Answers `PredictionService.GetModelMetadata`; the one field there is is `signature_def`."""
        spec = _spec_of(request)
        _check_fields(request.metadata_field)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        with self._catalogue.use(spec) as servable:
            signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=servable.model.all_signatures)
            response.model_spec.name = spec.name
            response.model_spec.version.value = servable.model.version
        response.metadata["signature_def"].Pack(signatures)
        return response

    def get_status(
        self, request: get_model_status_pb2.GetModelStatusRequest, call: Call
    ) -> get_model_status_pb2.GetModelStatusResponse:
        """Answers `ModelService.GetModelStatus`, for one version or for all that were seen; labels are ignored."""
        spec = _spec_of(request)
        states = self._catalogue.states(spec)
        if spec.WhichOneof("version_choice") == "version":
            wanted = spec.version.value
            if wanted not in states:
                raise not_found(f"Could not find version {wanted} of model {spec.name}")
            states = {wanted: states[wanted]}
        if not states:
            raise not_found(f"Could not find any versions of model {spec.name}")
        response = get_model_status_pb2.GetModelStatusResponse()
        for version, (state, code, error) in states.items():
            entry = response.model_version_status.add(version=version, state=state)
            entry.status.error_code = code.value[0]
            entry.status.error_message = error
        return response

    def reload_config(
        self, request: model_management_pb2.ReloadConfigRequest, call: Call
    ) -> model_management_pb2.ReloadConfigResponse:
        """Answers `ModelService.HandleReloadConfigRequest`."""
        try:
            self._catalogue.reload(request.config)
        except RequestError as error:
            logs.error("config_refused", error=error.message)
            raise
        return model_management_pb2.ReloadConfigResponse()

    def count(self, name: str, api: str, entrypoint: str, status: StatusCode, seconds: float) -> None:
        """Counts a request under its model's name, or as one for an unknown model."""
        self._metrics.answered(self._known(name), api, entrypoint, status, seconds)

    def _infer(
        self,
        api: str,
        spec: model_pb2.ModelSpec,
        request: Message,
        call: Call,
        answer: Callable[["LoadedModel"], _Response],
    ) -> _Response:
        """Finds the model, answers, and counts and logs how that went."""
        begin, status, message = time.monotonic(), StatusCode.OK, ""
        try:
            call.check()
            with self._catalogue.use(spec) as servable:
                response = answer(servable.model)
            if hasattr(request, "input"):
                self._metrics.examples(spec.name, examples.count(request.input))
            return response
        except RequestError as error:
            status, message = error.code, error.message
            raise
        except Exception as error:
            status, message = StatusCode.INTERNAL, repr(error)
            logs.broken(error)
            raise broken() from error
        finally:
            seconds = time.monotonic() - begin
            if call.entrypoint != REST:  # that side counts by itself, reading and writing included
                self.count(spec.name, api, call.entrypoint, status, seconds)
            if status is StatusCode.OK:
                self._metrics.ran(spec.name, api, call.runtime)
            self._log(api, self._known(spec.name), call, status, seconds, message, request)

    def _known(self, name: str) -> str:
        return name if self._catalogue.serves(name) else UNKNOWN_MODEL

    def _log(self, api, name, call, status, seconds, message, request) -> None:
        if not self._log_requests and (status is StatusCode.OK or not self._log_contents):
            return
        contents = {}
        if self._log_contents and status is not StatusCode.OK:
            contents = {"error": message, "request": str(request)[:_LONGEST_LOGGED]}
        logs.request(
            model=name,
            api=api,
            entrypoint=call.entrypoint,
            status=status.name,
            seconds=round(seconds, 6),
            bytes=request.ByteSize(),
            **contents,
        )


def _spec_of(request) -> model_pb2.ModelSpec:
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    return request.model_spec


def _check_fields(fields: Sequence[str]) -> None:
    if not fields:
        raise invalid_argument("GetModelMetadataRequest must specify at least one metadata_field")
    for field in fields:
        if field != "signature_def":
            raise invalid_argument(f"Metadata field {field} is not supported")
