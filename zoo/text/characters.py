"""Tokenizer with one id per character."""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from zoo.errors import InputError
from zoo.text.base import Tokenizer, clean, saved_list
from zoo.vocabulary import SPECIAL_PIECES, UNKNOWN, UNKNOWN_SURFACE

# Typeset text contains these instead of the space of a keyboard.
_SPACES = ("\u00a0", "\u2009", "\u202f")
_SPACE_MARK = "\u2581"


class CharTokenizer(Tokenizer):
    """One id per Unicode code point; the non-breaking, narrow and thin spaces are read as a space.

    Args:
        characters: The vocabulary without the special ids; the first has id 4.
        lowercase: See `Tokenizer`.

    Raises:
        InputError: An entry is not a single character, or is repeated.
    """

    kind = "chars"

    def __init__(self, characters: Sequence[str], lowercase: bool = False):
        super().__init__(lowercase)
        invalid = [c for c in characters if not isinstance(c, str) or len(c) != 1]
        if invalid or len(set(characters)) != len(characters):
            raise InputError(
                f"`characters` must be distinct single characters. Received: {invalid or 'a repeated one'}."
            )
        self.characters = tuple(characters)
        self.ids = {c: i for i, c in enumerate(self.characters, start=len(SPECIAL_PIECES))}
        if " " in self.ids:
            self.ids.update(dict.fromkeys(_SPACES, self.ids[" "]))

    @classmethod
    def train(cls, lines: Iterable[str], vocab_size: int | None = None, lowercase: bool = False) -> "CharTokenizer":
        """Collects the characters of `lines`, the most frequent first, ties by code point.

        Args:
            lines: Training text.
            vocab_size: Maximum number of ids, including the four special ones; the rarest characters then become
                unknown. `None` includes all.
            lowercase: See `Tokenizer`.

        Raises:
            InputError: There is no text, or `vocab_size` is too small for any character.
        """
        if vocab_size is not None and vocab_size <= len(SPECIAL_PIECES):
            raise InputError(f"`vocab_size` must exceed {len(SPECIAL_PIECES)}. Received: vocab_size={vocab_size}.")
        spaces = str.maketrans(dict.fromkeys(_SPACES, " "))
        counts = Counter(itertools.chain.from_iterable(clean(line, lowercase).translate(spaces) for line in lines))
        if not counts:
            raise InputError("A character vocabulary requires at least one character of text. Received: none.")
        ranked = sorted(counts, key=lambda c: (-counts[c], c))
        return cls(ranked if vocab_size is None else ranked[: vocab_size - len(SPECIAL_PIECES)], lowercase)

    @classmethod
    def from_saved(cls, state: Mapping[str, Any], read: Callable[[str], bytes]) -> Self:
        return cls(saved_list(state, "characters"), state.get("lowercase", False))

    @property
    def vocab_size(self) -> int:
        return len(SPECIAL_PIECES) + len(self.characters)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self.ids.get(c, UNKNOWN) for c in clean(text, self.lowercase)] for text in texts]

    def piece_table(self) -> tuple[str, ...]:
        """See `Tokenizer`; a space is printed as ▁, and other invisible characters as code points, `"U+200C"`."""
        return SPECIAL_PIECES + tuple(map(_printable, self.characters))

    def surfaces(self) -> tuple[str, ...]:
        """Returns the decoded text of every id, in order; empty for padding, start and end."""
        return ("", "", "", UNKNOWN_SURFACE, *self.characters)

    def _decode(self, rows: list[list[int]]) -> list[str]:
        surfaces = self.surfaces()
        return ["".join(surfaces[i] for i in row) for row in rows]

    def _files(self) -> dict[str, bytes]:
        state = {"kind": self.kind, "lowercase": self.lowercase, "characters": self.characters}
        return {".json": json.dumps(state).encode()}


def _printable(character: str) -> str:
    if character == " ":
        return _SPACE_MARK
    return character if character.isprintable() else f"U+{ord(character):04X}"
