"""Requests that a server replays before a new version answers."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow_serving.apis import classification_pb2, predict_pb2, prediction_log_pb2

from export.graph.model_graph import ModelGraph
from export.graph.signatures import CLASSIFY, Signature

TEXT = "warm up"


def write_warmup(
    folder: Path,
    model_name: str,
    graph: ModelGraph,
    signatures: Sequence[Signature],
    functions: Mapping[str, Any],
) -> None:
    """Writes requests to each signature: for all outputs, and where it is declared so for each output alone.

    A set of outputs that was not asked for before costs about as much as the first request of all: the server has to
    prepare the graph for it. These are the sets that `export.client` asks for, and what else is likely; one for every
    combination would make a version start later for answers that nobody wants. Code that XLA compiled for one set
    serves the others, so the size of their batches does not matter.

    Args:
        folder: Folder of the SavedModel.
        model_name: Name the requests are made to; the stock server does not look at it.
        graph: What the signatures are made of.
        signatures: The signatures.
        functions: Their functions by name.
    """
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature in signatures:
            outputs = sorted(functions[signature.name].get_concrete_function().structured_outputs)
            for log in _logs(model_name, graph, signature, outputs):
                writer.write(log.SerializeToString())


def _logs(
    model_name: str, graph: ModelGraph, signature: Signature, outputs: Sequence[str]
) -> Iterator[prediction_log_pb2.PredictionLog]:
    batches = [[TEXT]] if signature.warm_up is None else list(signature.warm_up(graph))
    request = _classification if signature.api == CLASSIFY else _prediction
    for texts in batches:
        yield request(model_name, signature, texts)
    if signature.single_outputs and len(outputs) > 1:
        for output in outputs:
            yield _prediction(model_name, signature, batches[0], output)


def _classification(model_name: str, signature: Signature, texts: Sequence[str]) -> prediction_log_pb2.PredictionLog:
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name, request.model_spec.signature_name = model_name, signature.name
    for text in texts:
        request.input.example_list.examples.add().features.feature["text"].bytes_list.value.append(text.encode())
    log = prediction_log_pb2.ClassifyLog(request=request)
    return prediction_log_pb2.PredictionLog(classify_log=log)


def _prediction(
    model_name: str, signature: Signature, texts: Sequence[str], *outputs: str
) -> prediction_log_pb2.PredictionLog:
    request = predict_pb2.PredictRequest(output_filter=outputs)
    request.model_spec.name, request.model_spec.signature_name = model_name, signature.name
    for name, value in sample_inputs(signature, texts).items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value, signature.inputs[name].dtype))
    return prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))


def sample_inputs(signature: Signature, texts: Sequence[str]) -> dict[str, Any]:
    """Returns inputs of a signature: all its texts are those given, and its numbers are 1.

    Args:
        signature: The signature.
        texts: The texts.
    """
    return {
        name: list(texts) if spec.dtype == tf.string else 1 if spec.shape.rank == 0 else [1] * len(texts)
        for name, spec in signature.inputs.items()
    }
