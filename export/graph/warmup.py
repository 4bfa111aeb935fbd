"""Requests that a server replays before a new version answers."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow_serving.apis import classification_pb2, predict_pb2, prediction_log_pb2

from export.graph.signatures import XLA

TEXT = "warm up"
ALONE = ("serving_default", XLA)  # signatures of which single outputs are asked for


def write_warmup(
    folder: Path,
    model_name: str,
    functions: Mapping[str, Any],
    classify: str,
    texts: Mapping[str, Iterable[Sequence[str]]],
) -> None:
    """Writes requests for each signature: for all outputs, and for each output of the default answer alone.

    A set of outputs that was not asked for before costs about as much as the first request of all: the server has to
    prepare the graph for it. These are the sets that `export.client` asks for, and what else is likely; a set for every
    combination would make a version start later for answers that nobody wants. Code that XLA compiled for one set
    serves the others, so that their size does not matter.

    Args:
        folder: Folder of the SavedModel.
        model_name: Name the requests are made to; the stock server does not look at it.
        functions: The signatures.
        classify: Name of the signature for the Classify API.
        texts: The texts of each request to a signature. Default: one short one.
    """
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, function in functions.items():
            batches = list(texts.get(signature, [[TEXT]]))
            if signature == classify:
                logs = [_classification(model_name, signature, batch) for batch in batches]
            else:
                logs = [_prediction(model_name, signature, function, batch) for batch in batches]
                outputs = sorted(function.get_concrete_function().structured_outputs)
                for output in outputs if signature in ALONE and len(outputs) > 1 else ():
                    logs.append(_prediction(model_name, signature, function, batches[0], output))
            for log in logs:
                writer.write(log.SerializeToString())


def _classification(model_name, signature, texts):
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name, request.model_spec.signature_name = model_name, signature
    for text in texts:
        request.input.example_list.examples.add().features.feature["text"].bytes_list.value.append(text.encode())
    log = prediction_log_pb2.ClassifyLog(request=request)
    return prediction_log_pb2.PredictionLog(classify_log=log)


def _prediction(model_name, signature, function, texts, *outputs):
    request = predict_pb2.PredictRequest(output_filter=outputs)
    request.model_spec.name, request.model_spec.signature_name = model_name, signature
    for spec in function.input_signature:
        # All texts have a batch axis, all numbers are scalars.
        value = texts if spec.dtype == tf.string else 1
        request.inputs[spec.name].CopyFrom(tf.make_tensor_proto(value, spec.dtype))
    return prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
