"""SentencePiece with ids in another order than its pieces."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from zoo.errors import InputError
from zoo.text.base import saved_list
from zoo.text.mapped_subwords import SPACE, tidied
from zoo.text.subwords import SubwordTokenizer
from zoo.vocabulary import SPECIAL_PIECES, UNKNOWN

UNUSED = "<unused>"
"""The piece of an unused id."""


class ReorderedSubwordTokenizer(SubwordTokenizer):
    """The SentencePiece subwords of a checkpoint, whose special pieces are not the first four.

    Args:
        model: A serialized SentencePiece model.
        model_ids: For each of our ids, the id in the model, −1 for none. The first four are the special ones; pieces
            that are not in it are unknown. If the unknown id has none, decoding omits unknown pieces and joins the
            others without the leading space, as `tokenizers` does.
        names: The names in the checkpoint of special tokens for which the model has no piece, by our id.
        original_ids: For each of our ids, the id in the checkpoint, −1 for none. Default: `model_ids`.
        tidy: Whether decoding removes spaces before English punctuation, see `zoo.text.mapped_subwords.tidied`.
        spaced: Whether a space is put before texts that begin without one, and decoding drops it; of a model that puts
            none.

    Raises:
        InputError: The bytes are not a SentencePiece model, or `model_ids` exceeds its pieces.
    """

    kind = "reordered_subword"

    def __init__(
        self,
        model: bytes,
        model_ids: Sequence[int],
        names: Mapping[int, str] | None = None,
        original_ids: Sequence[int] | None = None,
        tidy: bool = False,
        spaced: bool = False,
    ):
        self.model_ids, self.names, self.tidy, self.spaced = tuple(model_ids), dict(names or {}), tidy, spaced
        self.original_ids = self.model_ids if original_ids is None else tuple(original_ids)
        if len(self.original_ids) != len(self.model_ids):
            raise InputError(
                f"`original_ids` must have the length of `model_ids`, {len(self.model_ids)}. "
                f"Received: {len(self.original_ids)}."
            )
        super().__init__(model)

    def _read_pieces(self) -> tuple[str, ...]:
        pieces = super()._read_pieces()
        if max(self.model_ids) >= len(pieces):
            raise InputError(
                f"`model_ids` must be below {len(pieces)}, the size of the model. Received: {max(self.model_ids)}."
            )
        self.ids_of_model = [UNKNOWN] * len(pieces)
        for index, model_id in enumerate(self.model_ids):
            if index > UNKNOWN and model_id >= 0:
                self.ids_of_model[model_id] = index
        first = len(SPECIAL_PIECES)
        others = enumerate(self.model_ids[first:], start=first)
        return (*SPECIAL_PIECES, *(pieces[i] if i >= 0 else self.names.get(ours, UNUSED) for ours, i in others))

    @classmethod
    def from_saved(cls, state: Mapping[str, Any], read: Callable[[str], bytes]) -> Self:
        names = {int(index): name for index, name in state.get("names", {}).items()}
        original_ids = saved_list(state, "original_ids") if "original_ids" in state else None
        options = {name: bool(state.get(name)) for name in ("tidy", "spaced")}
        return cls(read(".model"), saved_list(state, "model_ids"), names, original_ids, **options)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if self.spaced:
            texts = [f" {text}" if text and text[0] not in (" ", SPACE) else text for text in texts]
        return [[self.ids_of_model[i] for i in row] for row in super().encode(texts)]

    def segmentations(self, word: str, count: int) -> list[tuple[tuple[int, ...], float]]:
        segmentations = super().segmentations(word, count)
        return [(tuple(self.ids_of_model[i] for i in ids), log_probability) for ids, log_probability in segmentations]

    def _decode(self, rows: list[list[int]]) -> list[str]:
        rows = [[self.model_ids[i] for i in row if self.model_ids[i] >= 0] for row in rows]
        if self.model_ids[UNKNOWN] >= 0:
            texts = super()._decode(rows)
        else:
            piece = self._processor.id_to_piece
            texts = ["".join(map(piece, row)).removeprefix(SPACE).replace(SPACE, " ") for row in rows]
        if self.spaced:
            texts = [text.removeprefix(" ") for text in texts]
        return list(map(tidied, texts)) if self.tidy else texts

    def _files(self) -> dict[str, bytes]:
        state: dict[str, Any] = {"kind": self.kind, "model_ids": self.model_ids}
        if self.names:
            state["names"] = self.names
        if self.original_ids != self.model_ids:
            state["original_ids"] = self.original_ids
        if self.tidy:
            state["tidy"] = True
        if self.spaced:
            state["spaced"] = True
        return {".model": self.model, ".json": json.dumps(state).encode()}
