"""WordPiece, the tokenizer of BERT and later models."""

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from zoo.errors import InputError
from zoo.text.base import Tokenizer, saved_list, without_surrogates
from zoo.text.bert_characters import PUNCTUATION, Reading, character_classes
from zoo.text.reordered_subwords import UNUSED
from zoo.vocabulary import SPECIAL_PIECES, UNKNOWN

_MAX_CACHED_WORDS = 1 << 16
UNKNOWN_WORD = "[UNK]"
"""The text of an unknown word."""
# Punctuation marks before which decoding adds no space.
_TIED = (".", "?", "!", ",")


class _Characters(dict[int, str]):
    """The normalized text of each code point, for `str.translate`; computed at the first use."""

    def __init__(self, reading: Reading):
        super().__init__()
        self._reading = reading

    def __missing__(self, code: int) -> str:
        self[code] = self._reading(code)
        return self[code]


@functools.cache
def _word_pattern() -> re.Pattern[str]:
    """Returns a pattern of words: a punctuation mark, or a run of characters without marks and spaces."""
    marks = "".join(re.escape(chr(code)) for code in (character_classes() == PUNCTUATION).nonzero()[0].tolist())
    return re.compile(f"[{marks}]|[^ {marks}]+")


class WordPieceTokenizer(Tokenizer):
    """Splits words greedily into the longest pieces of the vocabulary.

    Pieces within a word begin with `##`. A word is unknown as a whole if a part of it has no piece, or if it has more
    than `max_word_length` characters. Texts begin with the start token and end with the end token, BERT's `[CLS]` and
    `[SEP]`. Characters are normalized by `zoo.text.bert_characters.Reading`.

    Args:
        pieces: The piece of each id; the first four are the special ones.
        original_ids: The id of each piece in the original checkpoint, −1 for none.
        reading: The normalization of characters.
        max_word_length: Characters of the longest word that is not unknown.

    Raises:
        InputError: The pieces do not begin with the special ones, one is repeated, or `original_ids` is shorter or
            longer.

    Reference:
        Wu et al. 2016, "Google's Neural Machine Translation System", section 4.1, https://arxiv.org/abs/1609.08144;
        Devlin et al. 2019, "BERT", section 3, https://arxiv.org/abs/1810.04805
    """

    kind = "wordpiece"
    has_start = True

    def __init__(
        self,
        pieces: Sequence[str],
        original_ids: Sequence[int],
        reading: Reading,
        max_word_length: int = 100,
    ):
        super().__init__()
        self.original_ids, self.reading, self.max_word_length = tuple(original_ids), reading, max_word_length
        self._saved_pieces = tuple(pieces)
        if self._saved_pieces[:4] != SPECIAL_PIECES or len(self._saved_pieces) != len(self.original_ids):
            raise InputError(
                f"`pieces` must begin with {SPECIAL_PIECES}, and `original_ids` have the same length. Received: "
                f"{self._saved_pieces[:4]}, {len(self._saved_pieces)} pieces and {len(self.original_ids)} ids."
            )
        self.ids = self._ids_of_text()
        """The id of each piece except the special ones."""
        self._longest = max(map(len, self.ids), default=0)
        self._characters = _Characters(reading)
        self._cache: dict[str, tuple[int, ...]] = {}

    def _ids_of_text(self) -> dict[str, int]:
        ids: dict[str, int] = {}
        for index, piece in enumerate(self._saved_pieces):
            if index > UNKNOWN and piece != UNUSED and ids.setdefault(piece, index) != index:
                raise InputError(f"The pieces of a vocabulary must be distinct. Received: {piece!r} twice.")
        return ids

    @classmethod
    def from_saved(cls, state: Mapping[str, Any], read: Callable[[str], bytes]) -> Self:
        options = state.get("reading")
        if not isinstance(options, Mapping) or not set(options) <= set(Reading.__dataclass_fields__):
            raise InputError(f"a {cls.kind} tokenizer requires options 'reading'. Received: {options!r}.")
        pieces, original_ids = saved_list(state, "pieces"), saved_list(state, "original_ids")
        return cls(pieces, original_ids, Reading(**options), int(state.get("max_word_length", 100)))

    @property
    def vocab_size(self) -> int:
        return len(self._saved_pieces)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        find = _word_pattern().findall
        normalized = (without_surrogates(text).translate(self._characters) for text in texts)
        return [[i for word in find(text) for i in self._word_ids(word)] for text in normalized]

    def _word_ids(self, word: str) -> tuple[int, ...]:
        ids = self._cache.get(word)
        if ids is None:
            ids = self._pieces_of(word)
            if len(self._cache) >= _MAX_CACHED_WORDS:
                self._cache.clear()
            self._cache[word] = ids
        return ids

    def _pieces_of(self, word: str) -> tuple[int, ...]:
        if len(word) > self.max_word_length:
            return (UNKNOWN,)
        pieces, start = [], 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                piece = self.ids.get(prefix + word[start:end])
                if piece is not None:
                    break
            else:
                return (UNKNOWN,)
            pieces.append(piece)
            start = end
        return tuple(pieces)

    def piece_table(self) -> tuple[str, ...]:
        return self._saved_pieces

    def surfaces(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the decoded text of each id at the beginning of a text, and that after another id."""
        first = (*[""] * UNKNOWN, UNKNOWN_WORD, *self._saved_pieces[UNKNOWN + 1 :])
        return first, tuple(_within(piece) for piece in first)

    def _decode(self, rows: list[list[int]]) -> list[str]:
        first, within = self.surfaces() if rows else ((), ())
        return ["".join([*(first[i] for i in row[:1]), *(within[i] for i in row[1:])]) for row in rows]

    def _files(self) -> dict[str, bytes]:
        state = {
            "kind": self.kind,
            "pieces": self._saved_pieces,
            "original_ids": self.original_ids,
            "reading": vars(self.reading),
            "max_word_length": self.max_word_length,
        }
        return {".json": json.dumps(state, ensure_ascii=False).encode()}


def _within(piece: str) -> str:
    """Returns the decoded text of a piece after another one."""
    if piece.startswith("##"):
        return piece.removeprefix("##")
    return piece if piece in _TIED or not piece else f" {piece}"
