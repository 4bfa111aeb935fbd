"""What all tokenizers have in common."""

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
    """Turns strings into rows of ids and back. `kind` names the class in files and configurations.

    Attributes:
        has_start: Whether texts that are classified or embedded begin with the start symbol, as those of BERT do.
        has_end: Whether whole texts end with the end symbol where a model reads them; see `without_end`.

    Args:
        lowercase: Whether text is read in lower case (Unicode's mapping of letters; ß stays ß).
    """

    kind: str
    has_start = False
    has_end = True

    def __init__(self, lowercase: bool = False):
        self.lowercase = lowercase

    @property
    @abc.abstractmethod
    def vocab_size(self) -> int:
        """Number of ids, the four special ones included."""

    @abc.abstractmethod
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without special ids around them."""

    def whole(self, row: list[int], limit: int | None = None) -> list[int]:
        """Returns the ids of a whole text from those of `encode`: with the end and the start, if texts have them.

        Args:
            row: The ids.
            limit: Largest number of all ids together, so that some may be cut off at the end; `None` for any.
        """
        start, end = [START] if self.has_start else [], [END] if self.has_end else []
        kept = row if limit is None else row[: max(0, limit - len(start) - len(end))]
        return [*start, *kept, *end]

    def decode(self, rows: Iterable[Iterable[int]]) -> list[str]:
        """Returns the text of each row of ids.

        A row ends at its first `END`; `PAD`, `START` and ids outside the vocabulary are skipped.
        """
        return self._decode([self._text_ids(row) for row in rows])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns one printable string per id, such as `"▁the"`; `""` for `PAD` and ids outside the vocabulary."""
        table = self.piece_table()
        return [table[i] if PAD < i < len(table) else "" for i in ids]

    @abc.abstractmethod
    def piece_table(self) -> tuple[str, ...]:
        """Returns the printable piece of every id in order."""

    def without_end(self) -> Self:
        """Returns the same tokenizer for a model that reads whole texts without the end symbol behind them."""
        tokenizer = copy.copy(self)
        tokenizer.has_end = False
        return tokenizer

    def without_start(self) -> Self:
        """Returns the same tokenizer for a model whose whole texts do not begin with the start symbol."""
        tokenizer = copy.copy(self)
        tokenizer.has_start = False
        return tokenizer

    def with_start(self) -> Self:
        """Returns the same tokenizer for a model whose whole texts begin with the start symbol."""
        tokenizer = copy.copy(self)
        tokenizer.has_start = True
        return tokenizer

    def save(self, path: str | os.PathLike[str], replace: Replace = replacing) -> None:
        """Writes the tokenizer beside a model, to temporary names that are then renamed.

        At a path without suffix, `PATH.json` (and `PATH.model` for subwords) are written.

        Args:
            path: The path without suffix.
            replace: Yields the temporary path for a path, such as a work directory's own `replacing`.
        """
        path = Path(path)
        # The JSON file comes last: when it exists, the tokenizer is complete.
        for suffix, data in self._saved().items():
            with replace(path.with_name(f"{path.name}{suffix}")) as temporary:
                temporary.write_bytes(data)

    @classmethod
    @abc.abstractmethod
    def from_saved(cls, state: Mapping[str, Any], read: Callable[[str], bytes]) -> Self:
        """Returns a tokenizer that was saved.

        Args:
            state: What the JSON file holds.
            read: Returns the content of the file with a suffix, such as `".model"`.

        Raises:
            InputError: If something is missing or wrong.
        """

    @abc.abstractmethod
    def _decode(self, rows: list[list[int]]) -> list[str]:
        """Returns the text of rows that hold ordinary and unknown ids only."""

    def identity(self) -> str:
        """Returns a hash of all that the ids of a text depend on, the same for every copy of the tokenizer."""
        state = hashlib.sha256()
        for suffix, data in self._saved().items():
            state.update(f"{suffix} {len(data)} ".encode() + data)
        return state.hexdigest()

    def _saved(self) -> dict[str, bytes]:
        files = self._files()
        differs = {} if self.has_end else {"ends": False}
        if self.has_start != type(self).has_start:
            differs |= {"starts": self.has_start}
        if not differs:
            return files
        return {**files, ".json": json.dumps({**json.loads(files[".json"]), **differs}, ensure_ascii=False).encode()}

    @abc.abstractmethod
    def _files(self) -> dict[str, bytes]:
        """Returns what to save by suffix, the JSON file last."""

    def _text_ids(self, row: Iterable[int]) -> list[int]:
        until_end = itertools.takewhile(lambda i: i != END, map(int, row))
        return [i for i in until_end if UNKNOWN <= i < self.vocab_size]


def without_surrogates(text: str) -> str:
    """Replaces lone surrogates, which no UTF-8 can hold, as TensorFlow replaces invalid bytes."""
    try:
        text.encode()  # faster than a search, and nearly always enough
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)
    return text


def clean(text: str, lowercase: bool = False) -> str:
    """Returns a text as TensorFlow would read it, if asked for in lower case.

    TensorFlow's lower case ends at a NUL, which is therefore replaced as well.
    """
    text = without_surrogates(text)
    return text.replace("\0", "\ufffd").lower() if lowercase else text


def saved_list(state: Mapping[str, Any], name: str) -> list[Any]:
    """Returns a list that the JSON file of a tokenizer must hold.

    Raises:
        InputError: If it does not.
    """
    value = state.get(name)
    if not isinstance(value, list):
        raise InputError(f"a {state.get('kind')} tokenizer needs a list {name!r}. Received: {value!r}.")
    return value
