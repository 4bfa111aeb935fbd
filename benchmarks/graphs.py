"""Counts the operations of TensorFlow graphs: of a step of greedy decoding, of a training step, and of an export.

`python -m benchmarks.graphs [--model NAME …] [--graph KIND …] [--write]`. Constants are not counted. A step is the body
of the loop, without reads of variables; a training step is a forward and a backward pass; an export has all signatures.
`benchmarks/graphs.csv` contains the last counts: a count that is more than a tenth above them is an error; `--write`
updates the file.
"""

import csv
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.runner.command import CommandParser

TABLE = Path(__file__).with_suffix(".csv")
SIZE = 10_000  # of all vocabularies
TOLERANCE = 1.1
NOT_COUNTED = ("Const", "NoOp", "Placeholder")
_OF_STEPS = re.compile(r"while_while_body_\d+$")
VOCABULARIES = {
    "seq2seq": {"source_vocab_size": SIZE, "target_vocab_size": SIZE},
    "language_model": {"vocab_size": SIZE},
    "classifier": {"vocab_size": SIZE, "num_classes": 6},
    "sentence_encoder": {"vocab_size": SIZE},
}


def counted(graph: Any) -> Counter[str]:
    """Returns the number of operations of each kind in a `GraphDef` and its functions."""
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return Counter(node.op for node in nodes if node.op not in NOT_COUNTED)


def step_of(graph: Any) -> Counter[str]:
    """Returns the number of operations of each kind in the body of the loop over the steps of a search.

    That is the loop within the one that drops finished sentences; a step may contain further loops.
    """
    functions = graph.library.function
    bodies = [function.node_def for function in functions if _OF_STEPS.search(function.signature.name)]
    (counts,) = ([node.op for node in body if node.op not in (*NOT_COUNTED, "ReadVariableOp")] for body in bodies)
    return Counter(counts)


def _model(name: str) -> tuple[Any, dict[str, Any]]:
    """Returns a named model, and the specifications of its inputs."""
    import tensorflow as tf

    import zoo

    task = zoo.get_spec(name).task
    ids = tf.TensorSpec([None, None], tf.int32)
    specs = {"source": ids, "target": ids} if task == "seq2seq" else {"tokens": ids}
    model = zoo.create_model(name, **VOCABULARIES[task])
    model({side: tf.ones([1, 3], tf.int32) for side in specs})
    return model, specs


def decoding_step(name: str) -> Counter[str] | None:
    """Returns the operations of a step of greedy decoding; `None` for a model that does not generate."""
    import tensorflow as tf

    import zoo
    from zoo.inference.generator import Generator
    from zoo.inference.translator import Translator

    task = zoo.get_spec(name).task
    if task not in ("seq2seq", "language_model"):
        return None
    model, specs = _model(name)
    decoder, name_of_input = (Translator, "source") if task == "seq2seq" else (Generator, "prompt")
    decode = decoder(model)
    function = tf.function(lambda ids: decode({name_of_input: ids}), autograph=False)
    return step_of(function.get_concrete_function(next(iter(specs.values()))).graph.as_graph_def())


def training_step(name: str) -> Counter[str]:
    """Returns the operations of a forward and a backward pass with dropout."""
    import tensorflow as tf

    model, specs = _model(name)

    def gradients(inputs: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(inputs, training=True)))
        return tape.gradient(loss, [variable.value for variable in model.trainable_variables])

    function = tf.function(gradients, autograph=False)
    return counted(function.get_concrete_function(specs).graph.as_graph_def())


def export(name: str) -> Counter[str] | None:
    """Returns the operations of an export with all signatures; `None` unless the model is a translator."""
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    import zoo
    from benchmarks.decoding import random_words, write_untrained_workdir
    from export.saved_model import export_saved_model

    if zoo.get_spec(name).task != "seq2seq":
        return None
    with tempfile.TemporaryDirectory() as folder:
        workdir = Path(folder) / "workdir"
        write_untrained_workdir(workdir, random_words(SIZE, 1).tokenizer, name)
        path = export_saved_model(workdir, Path(folder) / "export")
        saved = SavedModel.FromString((path / "saved_model.pb").read_bytes())
    return counted(saved.meta_graphs[0].graph_def)


GRAPHS: dict[str, Callable[[str], Counter[str] | None]] = {
    "decoding step": decoding_step,
    "training step": training_step,
    "export": export,
}
EXPORTED = ("transformer_tiny",)
"""Models whose exports are counted by default."""


def stored() -> dict[tuple[str, str], int]:
    """Returns the counts of the table, by model and graph."""
    with TABLE.open(encoding="ascii", newline="") as file:
        return {(row["model"], row["graph"]): int(row["operations"]) for row in csv.DictReader(file)}


def larger(counts: dict[tuple[str, str], int]) -> list[str]:
    """Returns a line for each count that is more than a tenth above that of the table."""
    before = stored()
    return [
        f"{graph} of {model}: {count:,} operations, {before[model, graph]:,} before"
        for (model, graph), count in counts.items()
        if count > TOLERANCE * before.get((model, graph), count)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import zoo

    parser = CommandParser("graphs", __doc__)
    parser.add_argument("--model", nargs="+", choices=zoo.list_models(), metavar="NAME", help="default: all")
    parser.add_argument("--graph", nargs="+", choices=GRAPHS, default=[*GRAPHS], metavar="KIND", help="default: all")
    parser.add_argument("--write", action="store_true", help=f"update {TABLE.name}")
    options = parser.parse_args(arguments)
    counts = {}
    for kind in options.graph:
        names = options.model or (EXPORTED if kind == "export" else zoo.list_models())
        for name in names:
            operations = GRAPHS[kind](name)
            if operations is not None:
                counts[name, kind] = operations.total()
                most = ", ".join(f"{number} {operation}" for operation, number in operations.most_common(4))
                print(f"{name}, {kind}: {operations.total():,} operations; {most}", flush=True)
    if options.write:
        rows = sorted({**(stored() if TABLE.exists() else {}), **counts}.items())
        lines = ["model,graph,operations", *(f"{name},{kind},{count}" for (name, kind), count in rows)]
        TABLE.write_text("\n".join(lines) + "\n", encoding="ascii")
        return 0
    lines = larger(counts)
    for line in lines:
        print(f"error: {line}", file=sys.stderr)
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
