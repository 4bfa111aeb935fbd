"""Sentences as long as Multi30k's, in rows: padded, or packed one behind the other."""

import numpy as np
from numpy.typing import NDArray

GERMAN = (
    *(0, 0, 0, 2, 2, 9, 73, 245, 672, 1119, 1531, 1908, 2203, 2387, 2431, 2238, 2069, 1921, 1607, 1521, 1197, 1030),
    *(892, 735, 646, 471, 386, 328, 267, 232, 178, 150, 103, 95, 70, 59, 40, 31, 27, 14, 28, 18, 11, 14, 8, 5, 5, 5),
    *(4, 4, 4, 1, 0, 2, 2),
)
"""How many of the 29,000 German training sentences have 0, 1, 2 … tokens: in lower case, by SentencePiece with 6,000
subwords of both languages, the end included."""


def draw(count: int, seed: int = 0, counts: tuple[int, ...] = GERMAN) -> list[int]:
    """Returns the lengths of some sentences, drawn from a histogram."""
    shares = np.asarray(counts) / np.sum(counts)
    drawn: list[int] = np.random.default_rng(seed).choice(len(counts), count, p=shares).tolist()
    return drawn


def padded(rows: int, width: int, seed: int = 0) -> NDArray[np.int32]:
    """Returns 1 where rows [rows, width] of one sentence each have a token, and else 0; longer sentences are cut."""
    lengths = np.asarray(draw(rows, seed))
    return (np.arange(width) < lengths[:, None]).astype("int32")


def sorted_by_length(rows: int, width: int, seed: int = 0) -> NDArray[np.int32]:
    """Returns the same of sentences that are about as long as the rows: above three quarters of it."""
    counts = tuple(count if 3 * width < 4 * length <= 4 * width else 0 for length, count in enumerate(GERMAN))
    lengths = np.asarray(draw(rows, seed, counts))
    return (np.arange(width) < lengths[:, None]).astype("int32")


def packed(rows: int, width: int, seed: int = 0) -> NDArray[np.int32]:
    """Returns which sentence of its row each token is of, from 1 on, and 0 where there is none, [rows, width].

    Each sentence takes the first row that has room for it, of those that are not full; it ends when none has.
    """
    segments, filled = np.zeros((rows, width), "int32"), np.zeros(rows, int)
    count = np.zeros(rows, int)
    for length in draw(rows * width, seed):
        fitting = np.flatnonzero(filled + length <= width)
        if not len(fitting):
            break
        row = fitting[0]
        count[row] += 1
        segments[row, filled[row] : filled[row] + length] = count[row]
        filled[row] += length
    return segments
