"""The exports of a work directory that the cases serve, and what they should answer, asked in this process."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.serving.questions import OUTPUTS, Response
from benchmarks.serving.server import THREADS
from benchmarks.zoo_adapter import load_signature
from export.saved_model import export_saved_model

SENTENCES = 64


def in_process(folder: Path) -> Callable[[Sequence[str]], Response]:
    """Returns a function that answers some sentences with an exported model, loaded in this process."""
    run = load_signature(folder, OUTPUTS, THREADS)
    return lambda texts: Response.of(*run([text.encode() for text in texts]))


class Exports:
    """A work directory with its exports, each made when it is first asked for.

    Args:
        workdir: The work directory of a translator.
        folder: Where exports are stored; those that it already has are used as they are.
        text: A file of source sentences, one a line.

    Attributes:
        name: That of the work directory.
        workdir: The work directory.
        folder: The folder of its exports.
        questions: What is asked: one sentence each.
    """

    def __init__(self, workdir: Path, folder: Path, text: Path):
        self.name = workdir.resolve().name
        self.workdir, self.folder = workdir, folder / self.name
        with text.open(encoding="utf-8") as file:
            lines = filter(None, map(str.strip, file))
            self.questions = [[line] for line in itertools.islice(lines, SENTENCES)]

    def base(self, **options) -> Path:
        """Returns the base path of the export with these options, which has version 1."""
        base = self.folder / ("-".join(f"{name}-{value}" for name, value in sorted(options.items())) or "plain")
        if not (base / "1").exists():
            export_saved_model(self.workdir, base, 1, **options)
        return base

    def answers(self, questions: Sequence[Sequence[str]], **options) -> list[Response]:
        """Returns the answer of the export with these options to each question, one after the other."""
        return list(map(in_process(self.base(**options) / "1"), questions))
