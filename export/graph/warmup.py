"""Requests that a server replays before a new version answers."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import classification_pb2, predict_pb2, prediction_log_pb2

from export.graph.model_graph import ModelGraph
from export.graph.signatures import CLASSIFY, Signature


def write_warmup(folder: Path, model_name: str, graph: ModelGraph, signatures: Iterable[Signature]) -> None:
    """Writes requests to signatures of a SavedModel: for all outputs, and where one is declared `alone` for that one.

    A set of outputs that was not asked for before costs about as much as the first request of all: the server has to
    prepare the graph for it. These are the sets that `export.client` asks for; others would make a version start later
    for answers that few want. Code that XLA compiled for one set serves the others, so the size of their batches does
    not matter. Nor does the model's name: the stock server does not look at it.

    Inputs that may be left out are sent with their default values. Where that is not one row, the signature is not
    replayed: servers with `--enable_batching`, which refuse inputs that are not one for each text, would not start.
    """
    saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs[0].signature_def
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature in signatures:
            if any(np.shape(value)[:1] != (1,) for value in signature.defaults.values()):
                continue
            for request in _requests(graph, signature, len(saved[signature.name].outputs)):
                request.model_spec.name, request.model_spec.signature_name = model_name, signature.name
                log = {"classify_log" if signature.api == CLASSIFY else "predict_log": {"request": request}}
                writer.write(prediction_log_pb2.PredictionLog(**log).SerializeToString())


def _requests(graph: ModelGraph, signature: Signature, num_outputs: int) -> Iterator[Any]:
    batches = list(signature.warm_up(graph))
    for texts in batches:
        yield _classification(texts) if signature.api == CLASSIFY else _prediction(signature, texts)
    if signature.alone is not None and num_outputs > 1:
        yield _prediction(signature, batches[0], signature.alone)


def _classification(texts: list[str]) -> classification_pb2.ClassificationRequest:
    request = classification_pb2.ClassificationRequest()
    for text in texts:
        request.input.example_list.examples.add().features.feature["text"].bytes_list.value.append(text.encode())
    return request


def _prediction(signature: Signature, texts: list[str], *outputs: str) -> predict_pb2.PredictRequest:
    request = predict_pb2.PredictRequest(output_filter=outputs)
    for name, value in {**signature.defaults, **signature.example(texts)}.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value, signature.inputs[name].dtype))
    return request
