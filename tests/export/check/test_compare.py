"""`export.saved_model … --check`: what it asks and finds, of exports with all that changes how a graph is made."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from support.export_ops import check_ops
from support.exports import LoadedModel

import export.graph.xla_buckets
from export.check import compare as check
from export.check.compare import check_export, expectation_of
from export.graph.provenance import read_options
from export.graph.signatures import signatures_of
from export.saved_model import export_saved_model
from zoo.errors import InputError
from zoo.inference import ClassifierRun, LanguageModelRun

pytestmark = pytest.mark.nightly
# Each option with some task, and each task with some: those of a search go together, and those of all tasks vary.
FORMS = [
    ("text", {"beam_size": 2, "nbest": 3, "coverage_penalty": 0.1, "no_repeat_ngram": 2}),
    ("text", {"xla": True, "weights": "bfloat16", "signatures": "none"}),
    ("dates", {"weights": "bfloat16", "dynamic_batching": True, "signatures": "nbest, attention"}),
    ("dates", {"xla": True, "beam_size": 2, "signatures": "none"}),
    ("labelled", {"weights": "int8", "dynamic_batching": True}),
    ("lines", {"weights": "int8", "xla": True, "max_length": 9}),
]


@pytest.mark.parametrize(("kind", "options"), FORMS, ids=str)
def test_a_checked_export(kind, options, request, tmp_path, monkeypatch):
    monkeypatch.setattr(export.graph.xla_buckets, "BATCH_SIZES", (1, 2))
    monkeypatch.setattr(export.graph.xla_buckets, "LENGTHS", (8,))
    path = export_saved_model(request.getfixturevalue(f"{kind}_workdir"), tmp_path, check=True, **options)
    check_ops(path, kind, options)


@pytest.mark.parametrize(
    ("kind", "cls", "method", "signature"),
    [
        ("labelled", ClassifierRun, "embed", "embed"),
        ("lines", LanguageModelRun, "score", "score"),
    ],
)
def test_an_export_that_answers_otherwise(kind, cls, method, signature, request, monkeypatch):
    """Every output of every signature is compared."""
    run = request.getfixturevalue(f"{kind}_run")
    path = request.getfixturevalue(f"{kind}_export") / "1"
    options, signatures = read_options(path), LoadedModel(path, 1).signatures
    declared = {each.name: each for each in signatures_of(run, options)}
    assert declared.keys() == signatures.keys()
    for name, each in declared.items():
        assert expectation_of(run, options, each).expected.keys() == signatures[name].outputs.keys()
    honest = getattr(cls, method)
    monkeypatch.setattr(cls, method, lambda run, *texts: honest(run, *(each[::-1] for each in texts)))
    with pytest.raises(InputError, match=f"signature '{signature}'"):
        check_export(run, path)


def test_an_export_that_does_not_load(labelled_run, labelled_export, tmp_path):
    shutil.copytree(labelled_export / "1", tmp_path / "1")
    (tmp_path / "1" / "saved_model.pb").write_bytes(b"")
    with pytest.raises(InputError, match="load"):
        check_export(labelled_run, tmp_path / "1")


def test_what_needs_xla_is_refused_as_servers_do(tmp_path):
    function = tf.function(lambda x: {"y": x + 1.0}, [tf.TensorSpec([None], tf.float32, name="x")], jit_compile=True)
    tf.saved_model.save(tf.Module(), str(tmp_path / "1"), signatures={"serving_default": function})
    requests = json.dumps([{"signature": "serving_default", "inputs": {"x": [1.0]}, "outputs": ["y"]}])

    def answer(*flags):
        command = [sys.executable, str(Path(check.__file__).with_name("stock_loader.py")), str(tmp_path / "1"), *flags]
        return subprocess.run(command, input=requests, capture_output=True, text=True)

    assert json.loads(answer("xla").stdout)["answers"] == [{"y": [2.0]}]
    assert answer().returncode == 1
