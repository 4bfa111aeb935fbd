"""SentencePiece with the ids of another vocabulary."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from zoo.errors import InputError
from zoo.text.base import Tokenizer, clean, saved_list
from zoo.text.subwords import read_model
from zoo.vocabulary import SPECIAL_PIECES, UNKNOWN

SPACE = "\u2581"
"""The character for a space in a piece: ▁."""
CODE = re.compile(r">>.*?<<", re.DOTALL)
"""A language code, such as `>>fra<<`, at the beginning of a text."""
TIDY = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'")) + tuple(
    (f" {ending}", ending) for ending in ("n't", "'m", "'s", "'ve", "'re")
)
"""The replacements, in this order, that `tidy` makes in a text."""


class MappedSubwordTokenizer(Tokenizer):
    """SentencePiece subwords with the ids of a separate list of pieces, as in Marian's models.

    Two languages have separate SentencePiece models and share the list; pieces that are not in it are unknown. A code
    such as `>>fra<<` at the beginning of a text is one token. Decoding joins the pieces and omits unknown ones.

    Args:
        model: A serialized SentencePiece model.
        pieces: The piece of each id; the first four are the special ones.
        original_ids: The id of each piece in the original checkpoint, −1 for none.
        tidy: Whether decoding removes spaces before English punctuation.
        controls: Ids of further pieces that are not text: no text is encoded to them, and they decode to nothing.
        has_codes: Whether a code at the beginning of a text is one token.

    Raises:
        InputError: The bytes are not a SentencePiece model, or the pieces do not begin with the special ones.

    Reference:
        Junczys-Dowmunt et al. 2018, "Marian: Fast Neural Machine Translation in C++", https://arxiv.org/abs/1804.00344;
        Tiedemann and Thottingal 2020, "OPUS-MT", https://aclanthology.org/2020.eamt-1.61
    """

    kind = "mapped_subword"

    def __init__(
        self,
        model: bytes,
        pieces: Sequence[str],
        original_ids: Sequence[int],
        tidy: bool = False,
        controls: Sequence[int] = (),
        has_codes: bool = True,
    ):
        super().__init__()
        self.model, self.original_ids, self.tidy = model, tuple(original_ids), tidy
        self.controls, self.has_codes = frozenset(controls), has_codes
        self._processor = read_model(model)
        self._pieces = tuple(pieces)
        if self._pieces[:4] != SPECIAL_PIECES or len(self._pieces) != len(self.original_ids):
            raise InputError(
                f"`pieces` must begin with {SPECIAL_PIECES}, and `original_ids` have the same length. "
                f"Received: {self._pieces[:4]}, {len(self._pieces)} pieces and {len(self.original_ids)} ids."
            )
        text = ((piece, i) for i, piece in enumerate(self._pieces) if i > UNKNOWN and i not in self.controls)
        self._ids = dict(text)

    @classmethod
    def from_saved(cls, state: Mapping[str, Any], read: Callable[[str], bytes]) -> Self:
        pieces, original_ids = (saved_list(state, name) for name in ("pieces", "original_ids"))
        controls, has_codes = state.get("controls", ()), bool(state.get("has_codes", True))
        return cls(read(".model"), pieces, original_ids, bool(state.get("tidy")), controls, has_codes)

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        rows = []
        for text in map(clean, texts):
            code = CODE.match(text) if self.has_codes else None
            pieces = self._processor.encode(text[code.end() :] if code else text, out_type=str)
            rows.append([self._ids.get(piece, UNKNOWN) for piece in ([code[0], *pieces] if code else pieces)])
        return rows

    def ids(self) -> dict[str, int]:
        """Returns the ids of all pieces except the special ones."""
        return dict(self._ids)

    def surfaces(self) -> list[str]:
        """Returns the decoded text of each id."""
        return [
            "" if i <= UNKNOWN or i in self.controls else piece.replace(SPACE, " ")
            for i, piece in enumerate(self._pieces)
        ]

    def piece_table(self) -> tuple[str, ...]:
        return self._pieces

    def _decode(self, rows: list[list[int]]) -> list[str]:
        surfaces = self.surfaces() if rows else []
        texts = ["".join(surfaces[i] for i in row).strip(" ") for row in rows]
        return list(map(tidied, texts)) if self.tidy else texts

    def _files(self) -> dict[str, bytes]:
        state: dict[str, Any] = {
            "kind": self.kind,
            "pieces": self._pieces,
            "original_ids": self.original_ids,
            "tidy": self.tidy,
        }
        if self.controls:
            state["controls"] = sorted(self.controls)
        if not self.has_codes:
            state["has_codes"] = False
        return {".model": self.model, ".json": json.dumps(state, ensure_ascii=False).encode()}


def tidied(text: str) -> str:
    """Returns a text without spaces before English punctuation, by the rules `TIDY`."""
    for old, new in TIDY:
        text = text.replace(old, new)
    return text
