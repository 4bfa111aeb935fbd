"""The order of our ids: padding, start, end and unknown are 0 to 3, and the other tokens follow in their order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from zoo.errors import InputError
from zoo.vocabulary import END, PAD, SPECIAL_PIECES, START, UNKNOWN

NEW = -1
"""The original id of a token that the checkpoint lacks."""


@dataclass(frozen=True)
class Arrangement:
    """The id in the checkpoint of each of our ids.

    Attributes:
        original_ids: The id in the checkpoint of each of our ids, or `NEW`. A token that is, say, both start and end
            occurs twice.
    """

    original_ids: tuple[int, ...]

    def rows(self, table: np.ndarray, new: float = 0.0) -> np.ndarray:
        """Returns the rows of a table [V, …] of the checkpoint in our order; those of new tokens are `new`."""
        rows = table[np.maximum(self.original_ids, 0)]
        rows[np.equal(self.original_ids, NEW)] = new
        return rows

    def pieces(self, pieces: Sequence[str]) -> list[str]:
        """Returns the pieces in our order, the special ones under our names."""
        special = len(SPECIAL_PIECES) - 1
        return [*SPECIAL_PIECES[:special], *(pieces[i] for i in self.original_ids[special:])]

    @property
    def size(self) -> int:
        """The number of tokens of the checkpoint."""
        return max(self.original_ids) + 1

    def complete(self, pad: bool = True) -> "Arrangement":
        """Returns the arrangement in which new tokens get the ids after the last one, for a checkpoint to write.

        Args:
            pad: Whether padding gets an id, too.
        """
        new = iter(range(self.size, self.size + len(self.original_ids)))
        return Arrangement(
            tuple(next(new) if i == NEW and (pad or ours != PAD) else i for ours, i in enumerate(self.original_ids))
        )

    def with_start(self, tables: Iterable[np.ndarray]) -> "Arrangement":
        """Returns the arrangement in which the start token has an id of its own, the last, if it needs one.

        Where it shares an id with another special token, training may have made their rows different.

        Args:
            tables: The matrices with a row for each of our tokens.
        """
        ids = self.original_ids
        twin = next((ours for ours, i in enumerate(ids) if ours != START and i == ids[START]), None)
        if twin is None or all(np.array_equal(table[twin], table[START]) for table in tables):
            return self
        return Arrangement((*ids[:START], self.size, *ids[START + 1 :]))


def others_as_option(order: Arrangement, others: Sequence[int]) -> str:
    """Returns the option `other_ends` of a language model from the ids in the checkpoint.

    Raises:
        InputError: If one of them is not an ordinary token of the vocabulary.
    """
    ours = {original: index for index, original in enumerate(order.original_ids) if index >= UNKNOWN}
    if unknown := [original for original in others if original not in ours]:
        raise InputError(f"eos_token_id must be tokens of the vocabulary. Received: {unknown[0]}, among several.")
    return ",".join(str(ours[original]) for original in others)


def written_ends(order: Arrangement, other_ends: str) -> int | list[int]:
    """Returns `eos_token_id` of one of our language models from its option `other_ends`."""
    ids = [order.original_ids[END], *(order.original_ids[int(end)] for end in other_ends.split(",") if end)]
    return ids if len(ids) > 1 else ids[0]


def arrange(size: int, start: int, end: int, pad: int | None = None, unknown: int | None = None) -> Arrangement:
    """Returns the arrangement of a vocabulary.

    Args:
        size: The number of tokens of the checkpoint.
        start: The id of its start token, which may be another special token, too.
        end: The id of its end token.
        pad: The id of its padding, if it has one.
        unknown: The id of its unknown token, if it has one; otherwise our id 3 is an ordinary token.

    Raises:
        InputError: If one of these is not a token of the vocabulary.
    """
    named = {"bos_token_id or decoder_start_token_id": start, "eos_token_id": end, "pad_token_id": pad}
    for name, index in named.items():
        absent = index is None or (index == NEW and name != "eos_token_id")
        if not absent and (isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < size):
            raise InputError(f"{name} must be one of the {size:,} tokens of the vocabulary. Received: {index!r}.")
    special = [NEW if pad is None else pad, start, end, *([] if unknown is None else [unknown])]
    return Arrangement((*special, *(i for i in range(size) if i not in special)))
