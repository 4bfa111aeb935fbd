"""Reads token shards: checks them, maps them into memory and returns rows."""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from training.data.order import ByLength
from training.data.shards.arrays_file import Array, open_arrays
from training.data.shards.manifest import FileEntry, Manifest
from training.data.shards.rows import Part, Rows
from zoo.errors import InputError
from zoo.text import Tokenizer, load_tokenizer

# Checksums computed at a time; more would wait for the disk.
_CHECKED_TOGETHER = 4


def array_names(column: str) -> tuple[str, str]:
    """Returns the names of the arrays of a column in a shard: its values and the offsets of its rows."""
    return column, f"{column}.offsets"


def text_column(column: str) -> str:
    """Returns the name of the column that contains the texts of another as UTF-8."""
    return f"{column}.text"


class TokenShards:
    """The token shards in a folder, checked against the manifest before they are read.

    Args:
        path: The folder.

    Raises:
        InputError: If it contains no shards, or they are damaged.
    """

    def __init__(self, path: Path):
        self.path, self.manifest = path, Manifest.read(path)
        self._files: dict[str, list[dict[str, Array]]] = {}

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return tuple(self.manifest.splits)

    def tokenizers(self) -> dict[str, Tokenizer]:
        """Returns the tokenizers that made the ids."""
        tokenizers = {name: load_tokenizer(self.path / "tokenizers" / name) for name in self.manifest.tokenizers}
        for name, tokenizer in tokenizers.items():
            if tokenizer.identity() != self.manifest.tokenizers[name]:
                raise InputError(f"{self.path / 'tokenizers' / name}.json is not the tokenizer that made the shards.")
        return tokenizers

    def fit(self, tokenizers: Mapping[str, Tokenizer], classes: Sequence[str]) -> bool:
        """Returns whether the shards were made with these tokenizers and classes."""
        identities = {name: tokenizer.identity() for name, tokenizer in tokenizers.items()}
        return identities == self.manifest.tokenizers and list(classes) == self.manifest.classes

    def columns(self, split: str) -> dict[str, Rows]:
        """Returns the rows of ids of a split, by the name of their column; see `EncodedSplit`."""
        return {name: self._rows(split, name) for name in self.manifest.splits[split].tokens}

    def by_length(self, split: str) -> ByLength | None:
        """Returns the examples of a split in the order of their lengths, if it was prepared."""
        entry = self.manifest.splits[split].order
        if entry is None:
            return None
        arrays = self._open(entry)
        counts = arrays["counts"]
        return ByLength(arrays["lengths"].reshape(len(counts), -1), counts, arrays["examples"])

    def texts(self, split: str, column: str) -> Sequence[str]:
        """Returns the texts of a column; if only ids were kept, the result has a length but raises when read."""
        entry = self.manifest.splits[split]
        if not entry.has_texts:
            return MissingTexts(entry.examples, f"{self.path}, {split}", self._identity(split))
        rows = self._rows(split, text_column(column))
        texts = []
        for part in rows.parts:
            data, offsets = part.values.tobytes(), part.offsets.tolist()
            texts += [data[first:end].decode() for first, end in zip(offsets, offsets[1:], strict=False)]
        return texts

    def labels(self, split: str) -> list[str]:
        """Returns the label of each example."""
        classes = self.manifest.classes
        return [classes[number] for number in self.columns(split)["label"].values()]

    def _identity(self, split: str) -> str:
        """Returns a hash of all shards of a split."""
        state = hashlib.blake2b(digest_size=16)
        for entry in self.manifest.splits[split].shards:
            state.update(entry.sha256.encode())
        return state.hexdigest()

    def _rows(self, split: str, column: str) -> Rows:
        values, offsets = array_names(column)
        return Rows([Part(arrays[values], arrays[offsets]) for arrays in self._arrays(split)])

    def _arrays(self, split: str) -> list[dict[str, Array]]:
        """Returns the arrays of each shard of a split."""
        if split not in self._files:
            with ThreadPoolExecutor(_CHECKED_TOGETHER) as pool:
                self._files[split] = list(pool.map(self._open, self.manifest.splits[split].shards))
        return self._files[split]

    def _open(self, entry: FileEntry) -> dict[str, Array]:
        return open_arrays(self.path / entry.file, entry.sha256)


class MissingTexts(Sequence[str]):
    """Texts of which only the ids were kept: their number and a hash of the ids are known."""

    def __init__(self, count: int, where: str, identity: str):
        self.size, self.where, self.identity = count, where, identity

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        raise InputError(
            f"{self.where}: only the ids of these texts were kept, and the texts are needed. Prepare them with "
            "--keep_texts, or use the data that they were prepared from."
        )


@functools.lru_cache(maxsize=4)
def _opened(path: Path, changed: int) -> TokenShards:
    return TokenShards(path)


def open_shards(path: Path) -> TokenShards:
    """Returns the token shards in a folder; the same object, checked once, while the manifest does not change."""
    try:
        changed = (path / "manifest.json").stat().st_mtime_ns
    except OSError:
        changed = 0
    return _opened(path, changed)
