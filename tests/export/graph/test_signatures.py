"""Signatures that users add: exported, warmed up and checked."""

import contextlib
import io
import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from support.exports import LoadedModel, strings, warm_ups
from support.tiny_runs import run_quietly

from export import saved_model
from export.check import stock_loader
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
    tokens = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
    return {"tokens": tf.maximum(tokens, least), "first": graph.tokenizers["text"].pieces(ids)[:, 0]}
"""
TEXTS = ["the horse sees girl", "house"]


def loaded_here(words, input, **options):
    """Does in this process what the check has done in one of its own."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said):
        # As if XLA were allowed: refusing it is for the whole life of a process.
        patch.setattr(sys, "argv", [*words[2:], "xla"])
        patch.setattr(sys, "stdin", io.StringIO(input))
        stock_loader.main()
    report = json.loads(said.getvalue())
    assert "export" in report.pop("foreign")
    return subprocess.CompletedProcess(words, 0, json.dumps({**report, "foreign": []}), "")


def test_a_signature_of_another_module(labelled_workdir, labelled_run, tmp_path, monkeypatch):
    monkeypatch.setattr(signatures, "_SIGNATURES", {**signatures._SIGNATURES})
    monkeypatch.setattr(subprocess, "run", loaded_here)
    (tmp_path / "my_signatures.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    options = ["--signatures", "count", "--warmup", "count", "--check"]
    arguments = ["--import", "my_signatures", labelled_workdir, "--output", "base", *options]
    assert run_quietly(saved_model.main, *arguments) == 0
    version = tmp_path / "base" / "1"
    assert len(sys.modules.pop("my_signatures").GRAPHS) == 2, "traced to be saved and to be compared, no more"

    outputs = LoadedModel(version, 1).predict("count", {"text": strings(TEXTS), "least": np.int32(3)})
    assert outputs["tokens"].tolist() == [max(3, len(ids)) for ids in labelled_run.ids(TEXTS)]
    (request,) = [each for each in warm_ups(version) if each.model_spec.signature_name == "count"]
    assert {name: tf.make_ndarray(proto).shape for name, proto in request.inputs.items()} == {"text": (1,), "least": ()}

    with pytest.raises(ValueError, match="'count'.*classifier"):
        register_signature("classifier", "count")
    del signatures._SIGNATURES["classifier", "count"]

    @register_signature("classifier", "count", inputs={"least": tf.TensorSpec([], tf.int32)})
    def otherwise(graph, text, least):
        return {"tokens": least - tf.zeros_like(graph.read(text))[:, 0]}

    with pytest.raises(InputError, match="signature 'count', output 'tokens'"):
        check_export(labelled_run, version)
