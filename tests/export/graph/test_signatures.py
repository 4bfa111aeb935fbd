"""Signatures that users add."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from support.exports import LoadedModel, strings
from support.tiny_runs import run_quietly
from tensorflow_serving.apis import prediction_log_pb2

from export import saved_model
from export.check.compare import check_export
from export.graph import signatures
from export.graph.signatures import register_signature
from zoo.errors import InputError

MODULE = """
import tensorflow as tf

from export.graph.signatures import register_signature

GRAPHS = []


@register_signature("classifier", "count", inputs={"least": tf.TensorSpec([], tf.int32)})
def count(graph, text, least):
    GRAPHS.append(text.graph)
    ids = graph.read(text)
    symbols = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
    return {"symbols": tf.maximum(symbols, least), "first": graph.tokenizers["text"].pieces(ids)[:, 0]}
"""
TEXTS = ["the horse sees girl", "house"]


@pytest.fixture(scope="module", autouse=True)
def alone():
    """Leaves the signatures of the tests alone, which are soon exported, and forgets them afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signatures, "_SIGNATURES", {})
        yield
    sys.modules.pop("my_signatures", None)


@pytest.fixture(scope="module")
def version(labelled_workdir, tmp_path_factory):
    """The folder of a classifier that was exported, and checked, with a signature of another module."""
    folder = tmp_path_factory.mktemp("added")
    (folder / "my_signatures.py").write_text(MODULE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        arguments = ["--import", "my_signatures", labelled_workdir, "--output", folder / "base", "--check"]
        assert run_quietly(saved_model.main, *arguments) == 0
    return folder / "base" / "1"


def test_a_signature_of_another_module_is_exported(version, labelled_run):
    outputs = LoadedModel(version, 1).predict("count", {"text": strings(TEXTS), "least": np.int32(3)})
    assert outputs["symbols"].tolist() == [max(3, len(ids)) for ids in labelled_run.ids(TEXTS)]


def test_it_is_traced_to_be_saved_and_to_be_compared_alone(version):
    assert len(sys.modules["my_signatures"].GRAPHS) == 2


def test_it_is_warmed_up(version):
    records = tf.data.TFRecordDataset(str(version / "assets.extra" / "tf_serving_warmup_requests"))
    logs = [prediction_log_pb2.PredictionLog.FromString(record) for record in records.as_numpy_iterator()]
    requests = [log.predict_log.request for log in logs]
    (request,) = [request for request in requests if request.model_spec.signature_name == "count"]
    assert {name: tf.make_ndarray(proto).shape for name, proto in request.inputs.items()} == {"text": (1,), "least": ()}


def test_it_is_checked(version, labelled_run, monkeypatch):
    monkeypatch.setattr(signatures, "_SIGNATURES", {})

    @register_signature("classifier", "count", inputs={"least": tf.TensorSpec([], tf.int32)})
    def otherwise(graph, text, least):
        return {"symbols": least - tf.zeros_like(graph.read(text))[:, 0]}

    with pytest.raises(InputError, match="answers otherwise than its work directory: signature 'count', output 'symb"):
        check_export(labelled_run, version)


def test_a_name_is_taken_once(version):
    with pytest.raises(ValueError, match="A signature 'count' of classifier models is registered already."):
        register_signature("classifier", "count")
