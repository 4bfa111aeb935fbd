"""Requests that a server replays before it serves a new version."""

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
    """Writes requests to signatures of a SavedModel: for all outputs, and for the one declared `alone`, if any.

    The first request for a new set of outputs is about as slow as the very first request, because the server has to
    prepare the graph for it. These are the sets that `export.client` requests; more sets would delay the start for
    outputs that few clients request. Code that XLA compiled for one set is used for the others, so the size of their
    batches does not matter. The model's name does not matter either, because the stock server ignores it.

    Optional inputs are sent with their default values. A signature with a default that is not one row is skipped: it
    would prevent servers with `--enable_batching` from starting, because they require one row of inputs per text.
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
