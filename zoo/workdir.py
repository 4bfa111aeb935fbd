"""The layout of a work directory, which training writes and everything else reads."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zoo.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path` that takes its place if the block succeeds, and is removed if not.

    The temporary name keeps its suffix.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not from `tempfile`, whose files only the owner may read.
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


class WorkDir:
    """Paths in a work directory.

    Args:
        path: The directory; it need not exist.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.data = self.path / "data.json"
        self.model = self.path / "model.keras"
        self.model_card = self.path / "MODEL_CARD.md"
        self.metrics = self.path / "metrics.jsonl"
        self.lock = self.path / ".lock"
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard = self.path / "tb"

    def tokenizer(self, name: str) -> Path:
        """Returns the path, without suffix, of the tokenizer called `name`."""
        return self.path / "tokenizers" / name

    def write_text(self, path: Path, text: str) -> None:
        """Writes a text file so that it is never seen half written."""
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def read_config(self) -> dict[str, Any]:
        """Returns the resolved configuration of the run.

        Raises:
            InputError: If there is none, or it cannot be read.
        """
        if not self.config.is_file():
            raise InputError(f"{self.path} is not a work directory: it has no {self.config.name}.")
        try:
            config: dict[str, Any] = json.loads(self.config.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{self.config} is not a configuration: {error}.") from None
        try:
            config["model"]["name"]
        except (KeyError, TypeError):
            raise InputError(f"{self.config} is not a configuration: it names no model.") from None
        return config
