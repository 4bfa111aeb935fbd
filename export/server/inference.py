"""Predict on a loaded model: message in, message out.

Rules, status codes and most of the wording are those of the stock server.
"""

from typing import TYPE_CHECKING

import numpy as np
from grpc import StatusCode

from export.server.deadline import Call
from export.server.signatures import DEFAULT_SIGNATURE
from export.server.status import RequestError, invalid_argument
from export.wire.protos import model_pb2, predict_pb2
from export.wire.tensors import to_array, to_proto

if TYPE_CHECKING:
    from export.server.models import LoadedModel

PREDICT, CLASSIFY, REGRESS = (f"tensorflow/serving/{method}" for method in ("predict", "classify", "regress"))


def predict(
    model: "LoadedModel", request: predict_pb2.PredictRequest, call: Call, as_content: bool = False
) -> predict_pb2.PredictResponse:
    """Answers `PredictionService.Predict`.

    Args:
        model: The model that the request names.
        request: The request.
        call: The caller.
        as_content: Whether to answer with `tensor_content`.

    Raises:
        RequestError: With the status code that the stock server gives.
    """
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    if name not in model.signatures:
        raise RequestError(StatusCode.FAILED_PRECONDITION, f'Serving signature key "{name}" not found.')
    method = model.signatures[name].method_name
    if model.check_method_names and method not in (PREDICT, CLASSIFY, REGRESS):
        raise RequestError(
            StatusCode.INTERNAL,
            f"Expected prediction signature method_name to be one of {{{PREDICT}, {CLASSIFY}, {REGRESS}}}. "
            f"Was: {method}",
        )
    inputs = {alias: _decode(alias, proto) for alias, proto in request.inputs.items()}
    outputs = model.predict(name, inputs, request.output_filter, call)
    response = predict_pb2.PredictResponse(model_spec=answered_by(model, request.model_spec))
    for alias, array in outputs.items():
        try:
            response.outputs[alias].CopyFrom(to_proto(array, as_content))
        except ValueError as error:
            raise RequestError(StatusCode.UNIMPLEMENTED, f"output tensor {alias}: {error}") from error
    return response


def answered_by(model: "LoadedModel", spec: model_pb2.ModelSpec) -> model_pb2.ModelSpec:
    """Returns the `model_spec` of an answer: what was asked for, with the version and signature that answered."""
    answered = model_pb2.ModelSpec(name=spec.name, signature_name=spec.signature_name or DEFAULT_SIGNATURE)
    answered.version.value = model.version
    return answered


def _decode(alias: str, proto) -> np.ndarray:
    try:
        return to_array(proto)
    except ValueError as error:
        raise invalid_argument(f"tensor parsing error: {alias}: {error}") from error
