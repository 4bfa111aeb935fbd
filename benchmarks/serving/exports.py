"""The exports of a work directory that the cases serve, and the responses that are expected of them."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.serving.protocol import OUTPUTS, Response
from benchmarks.serving.server import THREADS
from benchmarks.zoo_adapter import load_signature
from export.saved_model import export_saved_model

SENTENCES = 64


def in_process(folder: Path) -> Callable[[Sequence[str]], Response]:
    """Returns a function from sentences to the response of an exported model that is loaded in this process."""
    run = load_signature(folder, OUTPUTS, THREADS)
    return lambda texts: Response.of(*run([text.encode() for text in texts]))


class Exports:
    """A work directory and its exports, each of which is written when it is first used.

    Args:
        workdir: The work directory of a translator.
        folder: The folder of exports; those that it already contains are used as they are.
        text: A file of source sentences, one a line.

    Attributes:
        name: The name of the work directory.
        workdir: The work directory.
        folder: The folder of its exports.
        requests: The requests of clients, one sentence each.
    """

    def __init__(self, workdir: Path, folder: Path, text: Path):
        self.name = workdir.resolve().name
        self.workdir, self.folder = workdir, folder / self.name
        with text.open(encoding="utf-8") as file:
            lines = filter(None, map(str.strip, file))
            self.requests = [[line] for line in itertools.islice(lines, SENTENCES)]

    def base(self, **options) -> Path:
        """Returns the base path of the export with these options, which has version 1."""
        base = self.folder / ("-".join(f"{name}-{value}" for name, value in sorted(options.items())) or "plain")
        if not (base / "1").exists():
            export_saved_model(self.workdir, base, 1, **options)
        return base

    def responses(self, requests: Sequence[Sequence[str]], **options) -> list[Response]:
        """Returns the response of the export with these options to each request, computed in this process."""
        return list(map(in_process(self.base(**options) / "1"), requests))
