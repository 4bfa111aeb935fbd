"""Predict on a loaded model. Status codes and most messages are the stock server's."""

from typing import TYPE_CHECKING

import numpy as np
from grpc import StatusCode

from export.server.context import RequestContext
from export.server.errors import RequestError, failed_precondition, invalid_argument
from export.wire.protos import model_pb2, predict_pb2, tensor_pb2
from export.wire.tensors import to_array, to_proto

if TYPE_CHECKING:
    from export.server.models.saved_model import LoadedModel

DEFAULT_SIGNATURE = "serving_default"


def predict(
    model: "LoadedModel", request: predict_pb2.PredictRequest, context: RequestContext
) -> predict_pb2.PredictResponse:
    """Implements `PredictionService.Predict`."""
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    if name not in model.signatures:
        raise failed_precondition(f'Serving signature key "{name}" not found.')
    inputs = {alias: _decode(alias, proto) for alias, proto in request.inputs.items()}
    outputs = model.predict(name, inputs, request.output_filter, context)
    response = predict_pb2.PredictResponse(model_spec=answered_by(model, request.model_spec))
    for alias, array in outputs.items():
        try:
            response.outputs[alias].CopyFrom(to_proto(array))
        except ValueError as error:
            raise RequestError(StatusCode.UNIMPLEMENTED, f"output tensor {alias}: {error}") from error
    return response


def answered_by(model: "LoadedModel", spec: model_pb2.ModelSpec) -> model_pb2.ModelSpec:
    """Returns the `model_spec` of a response: the request's, with the version and signature that were run."""
    answered = model_pb2.ModelSpec(name=spec.name, signature_name=spec.signature_name or DEFAULT_SIGNATURE)
    answered.version.value = model.version
    return answered


def _decode(alias: str, proto: tensor_pb2.TensorProto) -> np.ndarray:
    try:
        return to_array(proto)
    except ValueError as error:
        raise invalid_argument(f"tensor parsing error: {alias}: {error}") from error
