"""SentencePiece with ids in another order than its pieces."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from zoo.errors import InputError
from zoo.text.base import saved_list
from zoo.text.subwords import SubwordTokenizer
from zoo.vocabulary import SPECIAL_PIECES, UNKNOWN

UNUSED = "<unused>"
"""The piece of an unused id."""


class ReorderedSubwordTokenizer(SubwordTokenizer):
    """The SentencePiece subwords of a checkpoint, whose special pieces are not the first four.

    Args:
        model: A serialized SentencePiece model.
        model_ids: For each of our ids, the id in the model, −1 for none. The first four are the special ones; pieces
            that are not in it are unknown.
        names: The names in the checkpoint of special tokens for which the model has no piece, by our id.

    Raises:
        InputError: The bytes are not a SentencePiece model, or `model_ids` exceeds its pieces.
    """

    kind = "reordered_subword"

    def __init__(self, model: bytes, model_ids: Sequence[int], names: Mapping[int, str] | None = None):
        self.model_ids, self.names = tuple(model_ids), dict(names or {})
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
        others = (pieces[i] if i >= 0 else UNUSED for i in self.model_ids[len(SPECIAL_PIECES) :])
        return (*SPECIAL_PIECES, *others)

    @classmethod
    def from_saved(cls, state: Mapping[str, Any], read: Callable[[str], bytes]) -> Self:
        names = {int(index): name for index, name in state.get("names", {}).items()}
        return cls(read(".model"), saved_list(state, "model_ids"), names)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self.ids_of_model[i] for i in row] for row in super().encode(texts)]

    def segmentations(self, word: str, count: int) -> list[tuple[tuple[int, ...], float]]:
        segmentations = super().segmentations(word, count)
        return [(tuple(self.ids_of_model[i] for i in ids), log_probability) for ids, log_probability in segmentations]

    def _decode(self, rows: list[list[int]]) -> list[str]:
        return super()._decode([[self.model_ids[i] for i in row if self.model_ids[i] >= 0] for row in rows])

    def _files(self) -> dict[str, bytes]:
        state: dict[str, Any] = {"kind": self.kind, "model_ids": self.model_ids}
        if self.names:
            state["names"] = self.names
        return {".model": self.model, ".json": json.dumps(state).encode()}
