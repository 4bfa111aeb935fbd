"""The answers to the three kinds of request, message in and message out; gRPC and REST both stand on them."""

from collections.abc import Sequence

import numpy as np
from grpc import StatusCode

from export.server.protos import get_model_metadata_pb2, get_model_status_pb2, model_pb2, predict_pb2
from export.server.signatures import DEFAULT_SIGNATURE
from export.server.status import RequestError, invalid_argument, not_found
from export.server.tensors import to_array, to_proto
from export.server.versions import ModelVersions


def predict(versions: ModelVersions, request: predict_pb2.PredictRequest) -> predict_pb2.PredictResponse:
    """Answers `PredictionService.Predict`.

    Raises:
        RequestError: With the status code that the stock server gives.
    """
    spec = _spec_of(request)
    model = versions.find(spec)
    name = spec.signature_name or DEFAULT_SIGNATURE
    if name not in model.signatures:
        raise RequestError(StatusCode.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
    inputs = {alias: _decode(alias, proto) for alias, proto in request.inputs.items()}
    outputs = model.predict(name, inputs, request.output_filter)
    return _response(spec.name, name, model.version, outputs)


def get_metadata(
    versions: ModelVersions, request: get_model_metadata_pb2.GetModelMetadataRequest
) -> get_model_metadata_pb2.GetModelMetadataResponse:
    """Answers `PredictionService.GetModelMetadata`; the one field there is is `signature_def`.

    Raises:
        RequestError: With the status code that the stock server gives.
    """
    spec = _spec_of(request)
    _check_fields(request.metadata_field)
    model = versions.find(spec)
    signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=model.all_signatures)
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name = spec.name
    response.model_spec.version.value = model.version
    response.metadata["signature_def"].Pack(signatures)
    return response


def get_status(
    versions: ModelVersions, request: get_model_status_pb2.GetModelStatusRequest
) -> get_model_status_pb2.GetModelStatusResponse:
    """Answers `ModelService.GetModelStatus`, for one version or for all that were seen.

    Raises:
        RequestError: With the status code that the stock server gives.
    """
    spec = _spec_of(request)
    states = versions.states() if spec.name == versions.name else {}
    if spec.HasField("version"):
        wanted = spec.version.value
        if wanted not in states:
            raise not_found(f"Could not find version {wanted} of model {spec.name}")
        states = {wanted: states[wanted]}
    if not states:
        raise not_found(f"Could not find any versions of model {spec.name}")
    response = get_model_status_pb2.GetModelStatusResponse()
    for version, (state, error) in states.items():
        entry = response.model_version_status.add(version=version, state=state)
        entry.status.error_code = StatusCode.INVALID_ARGUMENT.value[0] if error else StatusCode.OK.value[0]
        entry.status.error_message = error
    return response


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


def _decode(alias: str, proto) -> np.ndarray:
    try:
        return to_array(proto)
    except ValueError as error:
        raise invalid_argument(f"tensor parsing error: {alias}: {error}") from error


def _response(
    model_name: str, signature_name: str, version: int, outputs: dict[str, np.ndarray]
) -> predict_pb2.PredictResponse:
    response = predict_pb2.PredictResponse()
    response.model_spec.name = model_name
    response.model_spec.signature_name = signature_name
    response.model_spec.version.value = version
    for name, array in outputs.items():
        try:
            response.outputs[name].CopyFrom(to_proto(array))
        except ValueError as error:
            raise RequestError(StatusCode.UNIMPLEMENTED, f"output tensor {name}: {error}") from error
    return response
