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

    Raises:
        InputError: The bytes are not a SentencePiece model, or the pieces do not begin with the special ones.

    Reference:
        Junczys-Dowmunt et al. 2018, "Marian: Fast Neural Machine Translation in C++", https://arxiv.org/abs/1804.00344;
        Tiedemann and Thottingal 2020, "OPUS-MT", https://aclanthology.org/2020.eamt-1.61
    """

    kind = "mapped_subword"

    def __init__(self, model: bytes, pieces: Sequence[str], original_ids: Sequence[int], tidy: bool = False):
        super().__init__()
        self.model, self.original_ids, self.tidy = model, tuple(original_ids), tidy
        self._processor = read_model(model)
        self._pieces = tuple(pieces)
        if self._pieces[:4] != SPECIAL_PIECES or len(self._pieces) != len(self.original_ids):
            raise InputError(
                f"`pieces` must begin with {SPECIAL_PIECES}, and `original_ids` have the same length. "
                f"Received: {self._pieces[:4]}, {len(self._pieces)} pieces and {len(self.original_ids)} ids."
            )
        self._ids = {piece: index for index, piece in enumerate(self._pieces) if index > UNKNOWN}

    @classmethod
    def from_saved(cls, state: Mapping[str, Any], read: Callable[[str], bytes]) -> Self:
        return cls(
            read(".model"), saved_list(state, "pieces"), saved_list(state, "original_ids"), bool(state.get("tidy"))
        )

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        rows = []
        for text in map(clean, texts):
            code = CODE.match(text)
            pieces = self._processor.encode(text[code.end() :] if code else text, out_type=str)
            rows.append([self._ids.get(piece, UNKNOWN) for piece in ([code[0], *pieces] if code else pieces)])
        return rows

    def ids(self) -> dict[str, int]:
        """Returns the ids of all pieces except the special ones."""
        return dict(self._ids)

    def surfaces(self) -> list[str]:
        """Returns the decoded text of each id."""
        return [*[""] * len(SPECIAL_PIECES), *(piece.replace(SPACE, " ") for piece in self._pieces[UNKNOWN + 1 :])]

    def piece_table(self) -> tuple[str, ...]:
        return self._pieces

    def _decode(self, rows: list[list[int]]) -> list[str]:
        surfaces = self.surfaces() if rows else []
        return [self._tidied("".join(surfaces[i] for i in row).strip(" ")) for row in rows]

    def _tidied(self, text: str) -> str:
        for old, new in TIDY if self.tidy else ():
            text = text.replace(old, new)
        return text

    def _files(self) -> dict[str, bytes]:
        state = {"kind": self.kind, "pieces": self._pieces, "original_ids": self.original_ids, "tidy": self.tidy}
        return {".model": self.model, ".json": json.dumps(state, ensure_ascii=False).encode()}
