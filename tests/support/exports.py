"""Exported models, loaded the way the stock server loads them."""

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from export.server.errors import RequestError
from export.server.models.saved_model import LoadedModel

__all__ = ["Case", "LoadedModel", "RequestError", "ask", "meta_graph", "strings"]


def strings(texts):
    """Returns texts, or bytes, as an array that a signature takes."""
    return np.array([text.encode() if isinstance(text, str) else text for text in texts], object)


def ask(model, signature="serving_default", **texts):
    """Returns the outputs of a signature whose inputs are all texts."""
    return model.predict(signature, {name: strings(batch) for name, batch in texts.items()})


def meta_graph(path):
    """Returns the graph of a version, and its signatures, as they are on disk."""
    (graph,) = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes()).meta_graphs
    return graph


class Case:
    """An export and the run that it came from."""

    def __init__(self, run, base):
        self.run, self.path = run, base / "1"
        self.model = LoadedModel(self.path, 1)

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
