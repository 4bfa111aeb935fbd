"""Parallel text for the measurements."""

from pathlib import Path
from typing import Any

from training.config.resolve import resolve
from training.data import load_data
from training.tasks import get_task


def with_absolute_path(spec: str) -> str:
    """Returns a SPEC `text:DIR:SRC-TGT` with an absolute path, since contestants run in the root of the repository."""
    kind, directory, languages = spec.split(":")
    return f"{kind}:{Path(directory).resolve()}:{languages}"


def read_text(spec: str) -> tuple[Any, Any, Any]:
    """Returns the configuration of `transformer_tiny` for a text, its data, and the tokenizer of both sides."""
    config = resolve("transformer_tiny", spec, ["data.shared_vocabulary=true"])
    data = load_data(spec)
    task = get_task("seq2seq")
    return config, data, task.make_tokenizers(task.settle(config.data, data), data)["source"]
