"""The base class of all tokenizers."""

import abc
import copy
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from zoo.errors import InputError
from zoo.vocabulary import END, PAD, START, UNKNOWN
from zoo.workdir import replacing

_SURROGATES = re.compile("[\ud800-\udfff]")

Replace = Callable[[Path], AbstractContextManager[Path]]


class Tokenizer(abc.ABC):
    """Converts strings to rows of ids and back. `kind` is the name of the class in files and configurations.

    Attributes:
        has_start: Whether texts that are classified or embedded begin with the start token, as in BERT.
        has_end: Whether whole texts end with the end token; see `without_end`.

    Args:
        lowercase: Whether text is converted to lower case (by Unicode's mapping; ß stays ß).
    """

    kind: str
    has_start = False
    has_end = True

    def __init__(self, lowercase: bool = False):
        self.lowercase = lowercase

    @property
    @abc.abstractmethod
    def vocab_size(self) -> int:
        """Number of ids, including the four special ones."""

    @abc.abstractmethod
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without start and end."""

    def whole(self, row: list[int], limit: int | None = None) -> list[int]:
        """Adds start and end, according to `has_start` and `has_end`, to the ids of a text from `encode`.

        Args:
            row: The ids.
            limit: Maximum number of all ids, beyond which the row is cut; `None` for no limit.
        """
        start, end = [START] if self.has_start else [], [END] if self.has_end else []
        cut = row if limit is None else row[: max(0, limit - len(start) - len(end))]
        return [*start, *cut, *end]

    def decode(self, rows: Iterable[Iterable[int]]) -> list[str]:
        """Returns the text of each row of ids.

        A row ends at its first `END`; `PAD`, `START` and ids outside the vocabulary are skipped.
        """
        return self._decode([self._text_ids(row) for row in rows])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns one printable string per id, such as `"▁the"`; empty for `PAD` and ids outside the vocabulary."""
        table = self.piece_table()
        return [table[i] if PAD < i < len(table) else "" for i in ids]

    @abc.abstractmethod
    def piece_table(self) -> tuple[str, ...]:
        """Returns the printable piece of every id in order."""

    def without_end(self) -> Self:
        """Returns a copy for a model whose whole texts do not end with the end token."""
        tokenizer = copy.copy(self)
        tokenizer.has_end = False
        return tokenizer

    def without_start(self) -> Self:
        """Returns a copy for a model whose whole texts do not begin with the start token."""
        tokenizer = copy.copy(self)
        tokenizer.has_start = False
        return tokenizer

    def with_start(self) -> Self:
        """Returns a copy for a model whose whole texts begin with the start token."""
        tokenizer = copy.copy(self)
        tokenizer.has_start = True
        return tokenizer

    def save(self, path: str | os.PathLike[str], replace: Replace = replacing) -> None:
        """Writes the tokenizer atomically, to temporary files that are then renamed.

        The files are `PATH.json` and, for subwords, `PATH.model`.

        Args:
            path: The path without suffix.
            replace: Context manager that yields the temporary path for a path, such as a work directory's `replacing`.
        """
        path = Path(path)
        # The JSON file is written last: if it exists, the tokenizer is complete.
        for suffix, data in self._saved().items():
            with replace(path.with_name(f"{path.name}{suffix}")) as temporary:
                temporary.write_bytes(data)

    @classmethod
    @abc.abstractmethod
    def from_saved(cls, state: Mapping[str, Any], read: Callable[[str], bytes]) -> Self:
        """Returns a saved tokenizer.

        Args:
            state: The content of the JSON file.
            read: Function that returns the content of the file with a suffix, such as `".model"`.

        Raises:
            InputError: If a value is missing or invalid.
        """

    @abc.abstractmethod
    def _decode(self, rows: list[list[int]]) -> list[str]:
        """Returns the text of rows that contain only ordinary and unknown ids."""

    def identity(self) -> str:
        """Returns a hash of the tokenizer's state; equal tokenizers have the same hash."""
        state = hashlib.sha256()
        for suffix, data in self._saved().items():
            state.update(f"{suffix} {len(data)} ".encode() + data)
        return state.hexdigest()

    def _saved(self) -> dict[str, bytes]:
        files = self._files()
        changes = {} if self.has_end else {"ends": False}
        if self.has_start != type(self).has_start:
            changes |= {"starts": self.has_start}
        if not changes:
            return files
        return {**files, ".json": json.dumps({**json.loads(files[".json"]), **changes}, ensure_ascii=False).encode()}

    @abc.abstractmethod
    def _files(self) -> dict[str, bytes]:
        """Returns the contents of the files by suffix, the JSON file last."""

    def _text_ids(self, row: Iterable[int]) -> list[int]:
        until_end = itertools.takewhile(lambda i: i != END, map(int, row))
        return [i for i in until_end if UNKNOWN <= i < self.vocab_size]


def without_surrogates(text: str) -> str:
    """Replaces lone surrogates, which UTF-8 cannot encode, by U+FFFD, as TensorFlow does for invalid bytes."""
    try:
        text.encode()  # faster than a search, and nearly always sufficient
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)
    return text


def clean(text: str, lowercase: bool = False) -> str:
    """Returns a text as TensorFlow would read it, with `lowercase` in lower case.

    TensorFlow's lower-case conversion stops at a NUL, which is therefore replaced, too.
    """
    text = without_surrogates(text)
    return text.replace("\0", "\ufffd").lower() if lowercase else text


def saved_list(state: Mapping[str, Any], name: str) -> list[Any]:
    """Returns a required list from the JSON file of a tokenizer.

    Raises:
        InputError: If it is missing or not a list.
    """
    value = state.get(name)
    if not isinstance(value, list):
        raise InputError(f"a {state.get('kind')} tokenizer requires a list {name!r}. Received: {value!r}.")
    return value
