"""Classify, Regress and MultiInference on a loaded model, which take `tf.Example`s: message in, message out.

Rules, status codes and most of the wording are those of the stock server.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from grpc import StatusCode

from export.server.deadline import Call
from export.server.inference import CLASSIFY, REGRESS, answered_by
from export.server.signatures import DEFAULT_SIGNATURE
from export.server.status import RequestError, invalid_argument
from export.wire.protos import (
    classification_pb2,
    inference_pb2,
    input_pb2,
    meta_graph_pb2,
    model_pb2,
    regression_pb2,
)
from export.wire.tensors import type_of

if TYPE_CHECKING:
    from export.server.models import LoadedModel

_INPUTS, _CLASSES, _SCORES, _OUTPUTS = "inputs", "classes", "scores", "outputs"


def classify(
    model: "LoadedModel", request: classification_pb2.ClassificationRequest, call: Call
) -> classification_pb2.ClassificationResponse:
    """Answers `PredictionService.Classify`.

    Raises:
        RequestError: With the status code that the stock server gives.
    """
    return classification_pb2.ClassificationResponse(**_one_task(model, request, call, _classification, _classes))


def regress(
    model: "LoadedModel", request: regression_pb2.RegressionRequest, call: Call
) -> regression_pb2.RegressionResponse:
    """Answers `PredictionService.Regress`.

    Raises:
        RequestError: With the status code that the stock server gives.
    """
    return regression_pb2.RegressionResponse(**_one_task(model, request, call, _regression, _values))


def _one_task(model, request, call, plan, read) -> dict[str, Any]:
    """Returns the fields of a response: what `read` makes of the outputs that `plan` asks the signature for."""
    signature = _signature(model, request.model_spec, "No signature was found with the name: ")
    feed, fetches = plan(model, signature)
    outputs = _run_examples(model, request.input, feed, fetches, call)
    result = read(outputs, count(request.input), signature)
    return {"result": result, "model_spec": answered_by(model, request.model_spec)}


def multi_inference(
    model: "LoadedModel", request: inference_pb2.MultiInferenceRequest, call: Call
) -> inference_pb2.MultiInferenceResponse:
    """Answers `PredictionService.MultiInference`: several signatures on the same examples in one run of the graph.

    Raises:
        RequestError: With the status code that the stock server gives.
    """
    _check_tasks(request.tasks)
    signatures, feeds, fetches = [], set(), set()
    for task in request.tasks:
        signature = _signature(model, task.model_spec, "Requested signature not found in model graph: ")
        if task.method_name not in (CLASSIFY, REGRESS):
            raise RequestError(StatusCode.UNIMPLEMENTED, f"Unsupported signature method_name: {task.method_name}")
        feed, names = (_classification if task.method_name == CLASSIFY else _regression)(model, signature)
        signatures.append(signature)
        feeds.add(feed)
        fetches.update(names)
    if len(feeds) > 1:
        raise invalid_argument("Input tensor must be the same for all Signatures.")
    outputs = _run_examples(model, request.input, feeds.pop(), sorted(fetches), call)
    examples = count(request.input)
    response = inference_pb2.MultiInferenceResponse()
    for task, signature in zip(request.tasks, signatures, strict=True):
        result = response.results.add(model_spec=answered_by(model, task.model_spec))
        if task.method_name == CLASSIFY:
            result.classification_result.CopyFrom(_classes(outputs, examples, signature))
        else:
            result.regression_result.CopyFrom(_values(outputs, examples, signature))
    return response


def count(examples: input_pb2.Input) -> int:
    """Returns the number of the request's examples."""
    return len(examples.example_list.examples) or len(examples.example_list_with_context.examples)


def _check_tasks(tasks: Sequence[inference_pb2.InferenceTask]) -> None:
    names = [task.model_spec.signature_name or DEFAULT_SIGNATURE for task in tasks]
    for position, task in enumerate(tasks):
        if not task.model_spec.name:
            raise invalid_argument("Found ModelSpec with an empty model name.")
        if task.model_spec.name != tasks[0].model_spec.name:
            raise invalid_argument("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
        if names[position] in names[:position]:
            raise invalid_argument(f"Duplicate evaluation of signature: {names[position]}")


def _signature(model: "LoadedModel", spec: model_pb2.ModelSpec, complaint: str) -> meta_graph_pb2.SignatureDef:
    name = spec.signature_name or DEFAULT_SIGNATURE
    if name not in model.signatures:
        raise invalid_argument(f"{complaint}{name}")
    return model.signatures[name]


def _classification(model: "LoadedModel", signature: meta_graph_pb2.SignatureDef) -> tuple[str, list[str]]:
    """Returns the tensor names of the input and the outputs of a signature that classifies."""
    _check_method(model, signature, "classification", CLASSIFY)
    if len(signature.outputs) not in (1, 2):
        raise invalid_argument(f"Expected one or two output Tensors, found {len(signature.outputs)}")
    feed = _only_input(signature, "classification")
    fetches = [signature.outputs[name].name for name in (_CLASSES, _SCORES) if name in signature.outputs]
    if not fetches:
        raise RequestError(
            StatusCode.FAILED_PRECONDITION,
            f'Expected classification signature outputs to contain at least one of "{_CLASSES}" or "{_SCORES}". '
            f"Signature was: {signature}",
        )
    return feed, fetches


def _regression(model: "LoadedModel", signature: meta_graph_pb2.SignatureDef) -> tuple[str, list[str]]:
    """Returns the tensor names of the input and the output of a signature that regresses."""
    _check_method(model, signature, "regression", REGRESS)
    if len(signature.outputs) != 1:
        raise invalid_argument("Expected one output Tensor.")
    feed = _only_input(signature, "regression")
    if _OUTPUTS not in signature.outputs:
        raise RequestError(StatusCode.FAILED_PRECONDITION, f"No regression outputs found in SignatureDef: {signature}")
    return feed, [signature.outputs[_OUTPUTS].name]


def _check_method(model: "LoadedModel", signature: meta_graph_pb2.SignatureDef, kind: str, method: str) -> None:
    if model.check_method_names and signature.method_name != method:
        raise invalid_argument(f"Expected {kind} signature method_name to be {method}. Was: {signature.method_name}")
    if len(signature.inputs) != 1:
        raise invalid_argument("Expected one input Tensor.")


def _only_input(signature: meta_graph_pb2.SignatureDef, kind: str) -> str:
    if _INPUTS not in signature.inputs:
        raise RequestError(StatusCode.FAILED_PRECONDITION, f"No {kind} inputs found in SignatureDef: {signature}")
    return signature.inputs[_INPUTS].name


def _serialized(examples: input_pb2.Input) -> list[bytes]:
    """Returns the request's examples, each with the common context, as serialized `tf.Example`s."""
    if examples.WhichOneof("kind") == "example_list_with_context":
        # Serialized messages that follow one another are one message with the fields of both.
        context = examples.example_list_with_context.context.SerializeToString()
        return [context + item.SerializeToString() for item in examples.example_list_with_context.examples]
    return [item.SerializeToString() for item in examples.example_list.examples]


def _run_examples(
    model: "LoadedModel", examples: input_pb2.Input, feed: str, fetches: Sequence[str], call: Call
) -> dict[str, np.ndarray]:
    serialized = _serialized(examples)
    if not serialized:
        raise invalid_argument("Input is empty.")
    values = np.empty(len(serialized), object)
    values[:] = serialized
    return dict(zip(fetches, model.run({feed: values}, fetches, call), strict=True))


def _classes(
    outputs: dict[str, np.ndarray], examples: int, signature: meta_graph_pb2.SignatureDef
) -> classification_pb2.ClassificationResult:
    found = {name: outputs[signature.outputs[name].name] for name in (_CLASSES, _SCORES) if name in signature.outputs}
    for name, array in found.items():
        if array.ndim != 2:
            raise invalid_argument(f"Expected Tensor shape: [batch_size num_classes] but got {_shape(array)}")
        wanted, got = "DT_STRING" if name == _CLASSES else "DT_FLOAT", f"DT_{type_of(array).upper()}"
        if got != wanted:
            raise invalid_argument(f"Expected {name} Tensor of {wanted}. Got: {got}")
        if len(array) != examples:
            raise invalid_argument(f"Expected {name} output batch size of {examples}. Got: {len(array)}")
    if len({array.shape for array in found.values()}) > 1:
        sizes = " vs. ".join(str(array.shape[1]) for array in found.values())
        raise invalid_argument(f"Tensors class and score should match in dim_size(1). Got {sizes}")
    result = classification_pb2.ClassificationResult()
    for row in range(examples):
        entry = result.classifications.add()
        for column in range(next(iter(found.values())).shape[1]):
            one = entry.classes.add()
            if _CLASSES in found:
                one.label = found[_CLASSES][row, column].decode("utf-8", "replace")
            if _SCORES in found:
                one.score = found[_SCORES][row, column]
    return result


def _values(
    outputs: dict[str, np.ndarray], examples: int, signature: meta_graph_pb2.SignatureDef
) -> regression_pb2.RegressionResult:
    array = outputs[signature.outputs[_OUTPUTS].name]
    if not (array.ndim == 1 or array.ndim == 2 and array.shape[1] == 1):
        raise invalid_argument(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got " + _shape(array)
        )
    if len(array) != examples:
        raise invalid_argument(f"Input batch size did not match output batch size: {examples} vs. {len(array)}")
    if array.dtype != np.float32:
        raise invalid_argument(f"Expected output Tensor of DT_FLOAT.  Got: DT_{type_of(array).upper()}")
    result = regression_pb2.RegressionResult()
    for value in array.ravel():
        result.regressions.add(value=value)
    return result


def _shape(array: np.ndarray) -> str:
    return "[" + ",".join(map(str, array.shape)) + "]"
