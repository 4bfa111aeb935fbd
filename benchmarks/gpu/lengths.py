"""Sentences of Multi30k's lengths in rows, padded or packed."""

import numpy as np
from numpy.typing import NDArray

GERMAN = (
    *(0, 0, 0, 2, 2, 9, 73, 245, 672, 1119, 1531, 1908, 2203, 2387, 2431, 2238, 2069, 1921, 1607, 1521, 1197, 1030),
    *(892, 735, 646, 471, 386, 328, 267, 232, 178, 150, 103, 95, 70, 59, 40, 31, 27, 14, 28, 18, 11, 14, 8, 5, 5, 5),
    *(4, 4, 4, 1, 0, 2, 2),
)
"""The number of the 29,000 German training sentences with 0, 1, 2 … tokens: in lower case, by SentencePiece with 6,000
subwords of both languages, including the end."""


def draw(count: int, seed: int = 0, counts: tuple[int, ...] = GERMAN) -> list[int]:
    """Returns random lengths of sentences from a histogram."""
    shares = np.asarray(counts) / np.sum(counts)
    drawn: list[int] = np.random.default_rng(seed).choice(len(counts), count, p=shares).tolist()
    return drawn


def padded(rows: int, width: int, seed: int = 0) -> NDArray[np.int32]:
    """Returns 1 for each token and 0 for padding, [rows, width]: a sentence in each row, truncated to `width`."""
    lengths = np.asarray(draw(rows, seed))
    return (np.arange(width) < lengths[:, None]).astype("int32")


def sorted_by_length(rows: int, width: int, seed: int = 0) -> NDArray[np.int32]:
    """Returns what `padded` returns, for sentences that fill more than three quarters of a row."""
    counts = tuple(count if 3 * width < 4 * length <= 4 * width else 0 for length, count in enumerate(GERMAN))
    lengths = np.asarray(draw(rows, seed, counts))
    return (np.arange(width) < lengths[:, None]).astype("int32")


def packed(rows: int, width: int, seed: int = 0) -> NDArray[np.int32]:
    """Returns the number of the sentence of each token within its row, from 1, and 0 for padding, [rows, width].

    Each sentence is placed into the first row with enough space, until there is none.
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
