"""Every op of every kind of exported graph is one that the stock server links."""

import pytest
import tensorflow as tf
from support.exports import meta_graph

import export.graph.xla_buckets
from export.saved_model import export_saved_model

TF_TEXT_OPS = {"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"}
REFUSED = ("Xla", "PyFunc", "Cudnn", "NcclAll", "Collective", "_Mkl")
# Subwords go in and come out, words only go in, and characters need core TensorFlow alone.
TASKS = {"text": TF_TEXT_OPS, "dates": set(), "labelled": TF_TEXT_OPS - {"SentencepieceDetokenizeOp"}, "lines": set()}
FORMS = [{}, {"weights": "bfloat16"}, {"weights": "int8"}, {"dynamic_batching": True}, {"xla": True}]
BEAMS = [{"beam_size": 3, "coverage_penalty": 0.2, "no_repeat_ngram": 2}, {"beam_size": 2, "xla": True}]


def cases():
    """Yields work directory and options: every form of every task, and beam search."""
    for task in TASKS:
        searches = BEAMS if task in ("text", "dates") else []
        for options in [*FORMS, *searches]:
            marks = pytest.mark.nightly if options or task == "dates" else ()
            yield pytest.param(task, options, marks=marks, id="-".join([task, *map(str, options)]))


@pytest.mark.parametrize(("task", "options"), cases())
def test_ops_are_what_the_stock_server_links(task, options, request, monkeypatch, tmp_path):
    monkeypatch.setattr(export.graph.xla_buckets, "BATCH_SIZES", (2,))
    monkeypatch.setattr(export.graph.xla_buckets, "LENGTHS", (8,))
    if options:
        path = export_saved_model(request.getfixturevalue(f"{task}_workdir"), tmp_path, **options)
    else:
        path = request.getfixturevalue(f"{task}_export") / "1"
    graph = meta_graph(path).graph_def
    functions = graph.library.function
    nodes = [*graph.node, *(node for function in functions for node in function.node_def)]
    ops = {node.op for node in nodes}
    foreign = {op for op in ops - {each.signature.name for each in functions} if not hasattr(tf.raw_ops, op)}
    assert foreign == TASKS[task]
    assert not [op for op in ops if any(word in op for word in REFUSED)]
    assert ("BatchFunction" in ops) == bool(options.get("dynamic_batching"))
    compiled = [each for each in [*nodes, *functions] if each.attr["_XlaMustCompile"].b]
    assert bool(compiled) == bool(options.get("xla"))
