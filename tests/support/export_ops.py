"""Which operations an exported graph may have: those that the stock server links."""

import tensorflow as tf
from support.exports import meta_graph

TF_TEXT_OPS = {"SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceDetokenizeOp"}
# Subwords go in and come out, words only go in, and characters need core TensorFlow alone.
FOREIGN = {"text": TF_TEXT_OPS, "dates": set(), "labelled": TF_TEXT_OPS - {"SentencepieceDetokenizeOp"}, "lines": set()}
REFUSED = ("Xla", "PyFunc", "Cudnn", "NcclAll", "Collective", "_Mkl")


def check_ops(path, task, options):
    """Checks that the ops of a version are core TensorFlow's and those of TensorFlow Text that its task needs."""
    graph = meta_graph(path).graph_def
    functions = graph.library.function
    nodes = [*graph.node, *(node for function in functions for node in function.node_def)]
    ops = {node.op for node in nodes}
    foreign = {op for op in ops - {each.signature.name for each in functions} if not hasattr(tf.raw_ops, op)}
    assert foreign == FOREIGN[task]
    assert not [op for op in ops if any(word in op for word in REFUSED)]
    assert ("BatchFunction" in ops) == bool(options.get("dynamic_batching"))
    compiled = [each for each in [*nodes, *functions] if each.attr["_XlaMustCompile"].b]
    assert bool(compiled) == bool(options.get("xla"))
