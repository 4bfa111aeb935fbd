"""The special ids of every vocabulary, and padding of rows of ids."""

from collections.abc import Sequence

import numpy as np

PAD, START, END, UNKNOWN = 0, 1, 2, 3
SPECIAL_PIECES = ("<pad>", "<s>", "</s>", "<unk>")
UNKNOWN_SURFACE = "\u2047"
"""The text of an unknown id: ⁇, as in SentencePiece."""


def pad(rows: Sequence[Sequence[int]], length: int | None = None, num_rows: int | None = None) -> np.ndarray:
    """Returns rows of ids as one int32 array, padded with `PAD`.

    `length` and `num_rows` default to the length of the longest row and the number of rows.
    """
    array = np.full((num_rows or len(rows), length or max(map(len, rows), default=0)), PAD, dtype=np.int32)
    for index, row in enumerate(rows):
        array[index, : len(row)] = row
    return array
