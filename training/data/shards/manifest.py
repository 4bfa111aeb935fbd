"""The manifest of token shards: their origin, settings and the checksums of all files."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from zoo.errors import InputError

NAME = "manifest.json"
FORMAT, VERSION = "attention-zoo token shards", 1


@dataclass(frozen=True)
class FileEntry:
    """A file with its size and checksum."""

    file: str  # its path in the folder
    examples: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class SplitEntry:
    """The files of a split, and statistics of its preparation."""

    examples: int
    read: int  # number of examples in the data
    dropped: Mapping[str, int]  # number of examples that were left out, by reason
    tokens: Mapping[str, int]  # ids of each column, the ends included
    has_texts: bool  # whether the texts are saved with the ids
    shards: list[FileEntry]
    order: FileEntry | None = None  # the examples in the order of their lengths


@dataclass(frozen=True)
class Manifest:
    """The contents of `manifest.json`."""

    spec: str  # the data that were prepared
    task: str
    request: Mapping[str, Any]  # SPEC, settings and options
    settings: Mapping[str, Any]  # settings of `data.` that the ids depend on
    dataset: Mapping[str, Any]  # further attributes of the dataset, such as `joined`
    tokenizers: Mapping[str, str]  # a hash of each tokenizer, by its name
    classes: list[str]  # the labels; label n of a shard is the n-th
    splits: Mapping[str, SplitEntry] = field(default_factory=dict)

    def to_json(self) -> str:
        """Returns the manifest as JSON text."""
        values = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return json.dumps(values, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Returns the manifest in a folder; raises InputError if there is none, or it is damaged."""
        path = folder / NAME
        if not path.is_file():
            unfinished = (folder / ".work").is_dir()
            advice = "run the same command again to finish its preparation" if unfinished else "see training.prepare"
            raise InputError(f"{folder} contains no token shards: {NAME} is missing ({advice}).")
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values.pop("format") != FORMAT:
                raise InputError(f"{path} is not a manifest of token shards.")
            if (version := values.pop("version")) != VERSION:
                raise InputError(f"{path} has version {version}; this program reads version {VERSION}.")
            values["splits"] = {name: _split_entry(entry) for name, entry in values["splits"].items()}
            return cls(**values)
        except InputError:
            raise
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{path} is damaged: {type(error).__name__}: {error}.") from error


def _split_entry(values: Mapping[str, Any]) -> SplitEntry:
    order = values["order"]
    shards = [FileEntry(**entry) for entry in values["shards"]]
    return SplitEntry(**{**values, "shards": shards, "order": order and FileEntry(**order)})
