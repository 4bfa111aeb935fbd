"""From the ids of a checkpoint to ours: padding, start, end and unknown are 0 to 3, and the others follow in order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from zoo.errors import InputError
from zoo.vocabulary import END, PAD, SPECIAL_PIECES, START, UNKNOWN

NEW = -1
"""The original id of a token that the checkpoint does not have."""


@dataclass(frozen=True)
class Arrangement:
    """Which token of the checkpoint each of our ids is.

    Attributes:
        original_ids: The id in the checkpoint of each of our ids, or `NEW`. A token that is both, say, start and end
            is there twice.
    """

    original_ids: tuple[int, ...]

    def rows(self, table: np.ndarray, new: float = 0.0) -> np.ndarray:
        """Returns the rows of a table [V, …] of the checkpoint in our order; those of new tokens are `new`."""
        taken = table[np.maximum(self.original_ids, 0)]
        taken[np.equal(self.original_ids, NEW)] = new
        return taken

    def pieces(self, pieces: Sequence[str]) -> list[str]:
        """Returns the pieces in our order, the special ones under our names."""
        special = len(SPECIAL_PIECES) - 1
        return [*SPECIAL_PIECES[:special], *(pieces[i] for i in self.original_ids[special:])]

    @property
    def size(self) -> int:
        """The number of tokens of the checkpoint."""
        return max(self.original_ids) + 1

    def complete(self, pad: bool = True) -> "Arrangement":
        """Returns the arrangement in which tokens that were new come last, as the checkpoint will have them.

        Args:
            pad: Whether padding is one of them.
        """
        new = iter(range(self.size, self.size + len(self.original_ids)))
        return Arrangement(
            tuple(next(new) if i == NEW and (pad or ours != PAD) else i for ours, i in enumerate(self.original_ids))
        )

    def with_start(self, tables: Iterable[np.ndarray]) -> "Arrangement":
        """Returns the arrangement in which what begins texts has an id of its own, if it needs one.

        Where it was another special token as well, training may have made its rows different; it then comes last.

        Args:
            tables: What has a row for each token of ours.
        """
        ids = self.original_ids
        twin = next((ours for ours, i in enumerate(ids) if ours != START and i == ids[START]), None)
        if twin is None or all(np.array_equal(table[twin], table[START]) for table in tables):
            return self
        return Arrangement((*ids[:START], self.size, *ids[START + 1 :]))


def others_as_option(order: Arrangement, others: Sequence[int]) -> str:
    """Returns the option `other_ends` of a language model, of which these are the ids in the checkpoint.

    Raises:
        InputError: If one is no ordinary token of the vocabulary.
    """
    ours = {original: index for index, original in enumerate(order.original_ids) if index >= UNKNOWN}
    if unknown := [each for each in others if each not in ours]:
        raise InputError(f"eos_token_id must be tokens of the vocabulary. Received: {unknown[0]}, among several.")
    return ",".join(str(ours[each]) for each in others)


def written_ends(order: Arrangement, other_ends: str) -> int | list[int]:
    """Returns `eos_token_id` of one of our language models, given its option `other_ends`."""
    ids = [order.original_ids[END], *(order.original_ids[int(each)] for each in other_ends.split(",") if each)]
    return ids if len(ids) > 1 else ids[0]


def arrange(size: int, start: int, end: int, pad: int | None = None, unknown: int | None = None) -> Arrangement:
    """Returns the arrangement of a vocabulary.

    Args:
        size: Number of tokens of the checkpoint.
        start: Its id of what texts begin with; may be the same as another.
        end: Its id of what texts end with.
        pad: Its id of padding, if it has one.
        unknown: Its id of an unknown token, if it has one; else an ordinary token has our id of it.

    Raises:
        InputError: If one of these is no token of the vocabulary.
    """
    named = {"bos_token_id or decoder_start_token_id": start, "eos_token_id": end, "pad_token_id": pad}
    for name, index in named.items():
        known = index is None or (index == NEW and name != "eos_token_id")
        if not known and (isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < size):
            raise InputError(f"{name} must be one of the {size:,} tokens of the vocabulary. Received: {index!r}.")
    special = [NEW if pad is None else pad, start, end, *([] if unknown is None else [unknown])]
    return Arrangement((*special, *(i for i in range(size) if i not in special)))
