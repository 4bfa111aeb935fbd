"""The base class of all tokenizers."""

import abc
import copy
import dataclasses
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from zoo.errors import InputError, unknown_name
from zoo.vocabulary import END, PAD, START, UNKNOWN
from zoo.workdir import replacing

_SURROGATES = re.compile("[\ud800-\udfff]")

Replace = Callable[[Path], AbstractContextManager[Path]]


@dataclasses.dataclass(frozen=True)
class Around:
    """The ids that are added around whole texts, besides start and end.

    Attributes:
        before: Ids before a text.
        after: Ids after the end of a text.
        forced: Whether `before` is a forced prefix of the texts that a model generates.
        languages: The ids of the language codes, by code.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    forced: bool = False
    languages: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def language(self) -> str:
        """The language whose code is added to texts; empty if there is none."""
        return next((code for code, i in self.languages.items() if i in (*self.before, *self.after)), "")

    def of_language(self, code: str) -> "Around":
        """Returns the added ids for texts of another language.

        Raises:
            InputError: If the language is unknown; the message suggests similar ones.
        """
        if code not in self.languages:
            raise unknown_name("language", code, self.languages)
        codes, new = set(self.languages.values()), self.languages[code]
        before, after = (tuple(new if i in codes else i for i in ids) for ids in (self.before, self.after))
        return dataclasses.replace(self, before=before, after=after)

    @classmethod
    def from_saved(cls, state: Mapping[str, Any]) -> "Around":
        """Returns the value from the JSON file of a tokenizer; raises InputError if it is damaged."""
        try:
            before, after = (tuple(map(int, state[name])) for name in ("before", "after"))
            languages = {str(code): int(i) for code, i in state["languages"].items()}
            return cls(before, after, bool(state["forced"]), languages)
        except (LookupError, TypeError, ValueError, AttributeError):
            raise InputError(f"`around` is damaged. Received: around={state!r:.200}.") from None


class Tokenizer(abc.ABC):
    """Converts strings to rows of ids and back. `kind` is the name of the class in files and configurations.

    Attributes:
        has_start: Whether texts that are classified or embedded begin with the start token, as in BERT.
        has_end: Whether whole texts end with the end token; see `without_end`.
        around: Further ids that are added around whole texts, such as the code of a language.

    Args:
        lowercase: Whether text is converted to lower case (by Unicode's mapping; ß stays ß).
    """

    kind: str
    has_start = False
    has_end = True
    around = Around()

    def __init__(self, lowercase: bool = False):
        self.lowercase = lowercase

    @property
    def forced(self) -> tuple[int, ...]:
        """The forced prefix of the texts that a model generates."""
        return self.around.before if self.around.forced else ()

    @property
    @abc.abstractmethod
    def vocab_size(self) -> int:
        """Number of ids, including the four special ones."""

    @abc.abstractmethod
    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without start and end."""

    def whole(self, row: list[int], limit: int | None = None) -> list[int]:
        """Adds start and end, according to `has_start` and `has_end`, to the ids of a text from `encode`.

        The ids of `around` are added, too: before the text, after the start; and after the end.

        Args:
            row: The ids.
            limit: Maximum number of all ids, beyond which the row is cut; `None` for no limit.
        """
        start = [*([START] if self.has_start else []), *self.around.before]
        end = [*([END] if self.has_end else []), *self.around.after]
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

    def with_around(self, around: Around) -> Self:
        """Returns a copy for a model with other ids around whole texts.

        Raises:
            InputError: If an id is not in the vocabulary.
        """
        ids = [*around.before, *around.after, *around.languages.values()]
        if invalid := [i for i in ids if not isinstance(i, int) or not UNKNOWN <= i < self.vocab_size]:
            raise InputError(f"`around` must contain ids below {self.vocab_size}. Received: {invalid[0]!r}.")
        tokenizer = copy.copy(self)
        tokenizer.around = around
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
        differs: dict[str, Any] = {} if self.has_end else {"ends": False}
        if self.has_start != type(self).has_start:
            differs |= {"starts": self.has_start}
        if self.around != Around():
            differs |= {"around": dataclasses.asdict(self.around)}
        if not differs:
            return files
        return {**files, ".json": json.dumps({**json.loads(files[".json"]), **differs}, ensure_ascii=False).encode()}

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
