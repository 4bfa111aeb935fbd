"""The exports of a work directory that the cases serve, and what they should answer, asked in this process."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf
import tensorflow_text  # noqa: F401, its ops are in the graph

from benchmarks.serving.questions import OUTPUTS, Answer
from benchmarks.serving.server import THREADS
from export.saved_model import export_saved_model

SENTENCES = 64


class Local:
    """An exported model in this process, loaded as a server does from the folder of its version."""

    def __init__(self, folder: Path):
        tf.get_logger().setLevel("ERROR")  # the TF1 loader is deprecated, but servers load so
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=THREADS)
        session = tf.compat.v1.Session(graph=tf.Graph(), config=config)
        with session.graph.as_default():
            model = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(folder))
        signature = model.signature_def["serving_default"]
        fetches = [signature.outputs[name].name for name in OUTPUTS]
        self._run = session.make_callable(fetches, feed_list=[signature.inputs["text"].name])

    def answer(self, texts: Sequence[str]) -> Answer:
        """Returns the model's answer to some sentences."""
        return Answer.of(*self._run([text.encode() for text in texts]))


class Exports:
    """A work directory with its exports, each made when it is first asked for.

    Args:
        workdir: The work directory of a translator.
        folder: Where exports are stored; those that it already has are used as they are.
        text: A file of source sentences, one a line.

    Attributes:
        name: That of the work directory.
        folder: The folder of its exports.
        questions: What is asked: one sentence each.
    """

    def __init__(self, workdir: Path, folder: Path, text: Path):
        self.name = workdir.resolve().name
        self._workdir, self.folder = workdir, folder / self.name
        with text.open(encoding="utf-8") as file:
            lines = filter(None, map(str.strip, file))
            self.questions = [[line] for line in itertools.islice(lines, SENTENCES)]

    def base(self, **options) -> Path:
        """Returns the base path of the export with these options, which has version 1."""
        base = self.folder / ("-".join(f"{name}-{value}" for name, value in sorted(options.items())) or "plain")
        if not (base / "1").exists():
            export_saved_model(self._workdir, base, 1, **options)
        return base

    def answers(self, questions: Sequence[Sequence[str]], **options) -> list[Answer]:
        """Returns the answer of the export with these options to each question, one after the other."""
        local = Local(self.base(**options) / "1")
        return [local.answer(texts) for texts in questions]
