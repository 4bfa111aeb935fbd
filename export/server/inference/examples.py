"""Classify, Regress and MultiInference on a loaded model, which take `tf.Example`s.

Rules, status codes and most messages are the stock server's.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from grpc import StatusCode

from export.server.context import RequestContext
from export.server.errors import RequestError, failed_precondition, invalid_argument
from export.server.inference.predict import DEFAULT_SIGNATURE, answered_by
from export.wire.protos import classification_pb2, inference_pb2, input_pb2, meta_graph_pb2, regression_pb2
from export.wire.tensors import type_of

if TYPE_CHECKING:
    from export.server.models.saved_model import LoadedModel

Signature: TypeAlias = meta_graph_pb2.SignatureDef
Outputs = Mapping[str, np.ndarray]  # by name in the signature
_CLASSIFY, _REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"


def classify(
    model: "LoadedModel", request: classification_pb2.ClassificationRequest, context: RequestContext
) -> classification_pb2.ClassificationResponse:
    """Implements `PredictionService.Classify`."""
    return classification_pb2.ClassificationResponse(**_run(model, request, [(_CLASSIFY, request)], context)[0])


def regress(
    model: "LoadedModel", request: regression_pb2.RegressionRequest, context: RequestContext
) -> regression_pb2.RegressionResponse:
    """Implements `PredictionService.Regress`."""
    return regression_pb2.RegressionResponse(**_run(model, request, [(_REGRESS, request)], context)[0])


def multi_inference(
    model: "LoadedModel", request: inference_pb2.MultiInferenceRequest, context: RequestContext
) -> inference_pb2.MultiInferenceResponse:
    """Implements `PredictionService.MultiInference`: several signatures on the same examples in one run."""
    _check_tasks(request.tasks)
    answers = _run(model, request, [(task.method_name, task) for task in request.tasks], context)
    fields = {_CLASSIFY: "classification_result", _REGRESS: "regression_result"}
    response = inference_pb2.MultiInferenceResponse()
    for task, answer in zip(request.tasks, answers, strict=True):
        response.results.add(model_spec=answer["model_spec"], **{fields[task.method_name]: answer["result"]})
    return response


def _check_tasks(tasks: Sequence[inference_pb2.InferenceTask]) -> None:
    names = set()
    for task in tasks:
        if not task.model_spec.name:
            raise invalid_argument("Found ModelSpec with an empty model name.")
        if task.model_spec.name != tasks[0].model_spec.name:
            raise invalid_argument("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
        name = task.model_spec.signature_name or DEFAULT_SIGNATURE
        if name in names:
            raise invalid_argument(f"Duplicate evaluation of signature: {name}")
        names.add(name)
        if task.method_name not in (_CLASSIFY, _REGRESS):
            raise RequestError(StatusCode.UNIMPLEMENTED, f"Unsupported signature method_name: {task.method_name}")


def _run(
    model: "LoadedModel", request: Any, tasks: Sequence[tuple[str, Any]], context: RequestContext
) -> list[dict[str, Any]]:
    """Runs the graph once for all tasks, each a method and a message with the name of its signature.

    Returns the fields `result` and `model_spec` of each task's response.
    """
    signatures = []
    feeds: dict[str, None] = {}  # used as ordered sets
    fetches: dict[str, None] = {}
    for method, message in tasks:
        name = message.model_spec.signature_name or DEFAULT_SIGNATURE
        if name not in model.signatures:
            raise invalid_argument(f"No signature was found with the name: {name}")
        signature = model.signatures[name]
        outputs = _check_signature(method, signature)
        feeds[signature.inputs["inputs"].name] = None
        fetches |= {signature.outputs[output].name: None for output in outputs}
        signatures.append((signature, outputs))
    serialized = np.array([*_serialized(request.input), None], object)[:-1]  # with `None`, NumPy does not guess a type
    if not len(serialized):
        raise invalid_argument("Input is empty.")
    arrays = dict(zip(fetches, model.run(dict.fromkeys(feeds, serialized), list(fetches), context), strict=True))
    answers = []
    for (method, message), (signature, outputs) in zip(tasks, signatures, strict=True):
        by_name = {output: arrays[signature.outputs[output].name] for output in outputs}
        read = _read_classes if method == _CLASSIFY else _read_values
        answers.append({"result": read(by_name, len(serialized)), "model_spec": answered_by(model, message.model_spec)})
    return answers


def _check_signature(method: str, signature: Signature) -> list[str]:
    """Returns the outputs of a signature that a method reads; the only input must be `inputs`."""
    if len(signature.inputs) != 1:
        raise invalid_argument("Expected one input Tensor.")
    if method == _REGRESS and len(signature.outputs) != 1:
        raise invalid_argument("Expected one output Tensor.")
    names = ("classes", "scores") if method == _CLASSIFY else ("outputs",)
    kind = "classification" if method == _CLASSIFY else "regression"
    outputs = [name for name in names if name in signature.outputs]
    if "inputs" not in signature.inputs:
        raise failed_precondition(f"No {kind} inputs found in SignatureDef: {signature}")
    if not outputs:
        quoted = " or ".join(f'"{name}"' for name in names)
        raise failed_precondition(f"No {kind} outputs, {quoted}, found in SignatureDef: {signature}")
    return outputs


def _serialized(examples: input_pb2.Input) -> list[bytes]:
    """Returns the request's examples, each with the common context, as serialized `tf.Example`s."""
    if examples.WhichOneof("kind") == "example_list_with_context":
        # Concatenated serialized messages are one message with the fields of both.
        context = examples.example_list_with_context.context.SerializeToString()
        return [context + example.SerializeToString() for example in examples.example_list_with_context.examples]
    return [example.SerializeToString() for example in examples.example_list.examples]


def _check_output(name: str, array: np.ndarray, dtype: str, examples: int) -> None:
    if f"DT_{type_of(array).upper()}" != dtype:
        raise invalid_argument(f"Expected {name} Tensor of {dtype}. Got: DT_{type_of(array).upper()}")
    if len(array) != examples:
        raise invalid_argument(f"Expected {name} output batch size of {examples}. Got: {len(array)}")


def _read_classes(outputs: Outputs, examples: int) -> classification_pb2.ClassificationResult:
    shapes = {array.shape for array in outputs.values()}
    if any(len(shape) != 2 for shape in shapes):
        raise invalid_argument(
            f"Expected Tensor shape: [batch_size num_classes] but got {'; '.join(map(_brackets, shapes))}"
        )
    for name, array in outputs.items():
        _check_output(name, array, "DT_STRING" if name == "classes" else "DT_FLOAT", examples)
    if len(shapes) > 1:
        raise invalid_argument(f"Tensors class and score should match in dim_size(1). Got {sorted(shapes)}")
    columns = {}
    if "classes" in outputs:
        columns["label"] = [[label.decode("utf-8", "replace") for label in row] for row in outputs["classes"]]
    if "scores" in outputs:
        columns["score"] = outputs["scores"].tolist()
    result = classification_pb2.ClassificationResult()
    for row in zip(*columns.values(), strict=True):
        classes = [dict(zip(columns, values, strict=True)) for values in zip(*row, strict=True)]
        result.classifications.add(classes=[classification_pb2.Class(**fields) for fields in classes])
    return result


def _read_values(outputs: Outputs, examples: int) -> regression_pb2.RegressionResult:
    array = outputs["outputs"]
    if not (array.ndim == 1 or array.ndim == 2 and array.shape[1] == 1):
        shapes = "[batch_size] or [batch_size, 1]"
        raise invalid_argument(f"Expected output Tensor shape to be either {shapes} but got {_brackets(array.shape)}")
    _check_output("regression", array, "DT_FLOAT", examples)
    values = [regression_pb2.Regression(value=value) for value in array.ravel().tolist()]
    return regression_pb2.RegressionResult(regressions=values)


def _brackets(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"
