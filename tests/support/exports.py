"""Exported models, loaded the way the stock server loads them."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from export.server.errors import RequestError
from export.server.models.saved_model import LoadedModel
from export.wire.protos import model_pb2

__all__ = ["Case", "LoadedModel", "RequestError", "ask", "meta_graph", "refused", "strings", "texts_of", "warm_ups"]


def strings(texts):
    """Returns texts, or bytes, as an array that a signature takes."""
    return np.array([text.encode() if isinstance(text, str) else text for text in texts], object)


def ask(model, signature="serving_default", **texts):
    """Returns the outputs of a signature whose inputs are all texts."""
    return model.predict(signature, {name: strings(batch) for name, batch in texts.items()})


def texts_of(values):
    """Returns an output of strings as nested lists of texts."""
    return [texts_of(value) if isinstance(value, np.ndarray) else value.decode() for value in values]


def refused(ask, *arguments, naming=(), **options):
    """Asks what the graph refuses as an invalid argument, with all of some words in the message."""
    with pytest.raises(RequestError) as caught:
        ask(*arguments, **options)
    assert caught.value.code.name == "INVALID_ARGUMENT"
    missing = [str(word) for word in naming if str(word) not in caught.value.message]
    assert not missing, f"{missing} not in {caught.value.message!r}"


def warm_ups(path):
    """Returns the warm-up requests of a version."""
    records = tf.data.TFRecordDataset(str(path / "assets.extra" / "tf_serving_warmup_requests"))
    logs = [prediction_log_pb2.PredictionLog.FromString(record) for record in records.as_numpy_iterator()]
    return [getattr(log, log.WhichOneof("log_type")).request for log in logs]


def meta_graph(path):
    """Returns the graph of a version, and its signatures, as they are on disk."""
    (graph,) = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes()).meta_graphs
    return graph


class Case:
    """An export and the run that it came from; the export is loaded unless a server has loaded it."""

    def __init__(self, run, base, server=None):
        self.run, self.path = run, base / "1"
        self.model = LoadedModel(self.path, 1) if server is None else _model_of(server)

    def ask(self, texts, signature="serving_default", **scalars):
        """Returns the outputs for texts: all inputs that are texts get them, and numbers that are needed are 0."""
        declared = self.model.signatures[signature]
        needed = declared.inputs.keys() - declared.defaults.keys() - scalars.keys()
        inputs = {
            name: strings(texts) if declared.inputs[name].dtype == tf.string else np.array([0], np.int32)
            for name in needed
        }
        return self.model.predict(signature, {**inputs, **scalars})

    def translate(self, texts):
        """Returns the texts of the default signature."""
        return [text.decode() for text in self.ask(texts)["text"]]


def _model_of(server):
    """Returns the one model of a server in this process."""
    (name,) = server.core.names()
    with server.core.use(model_pb2.ModelSpec(name=name)) as model:
        return model
