"""Locates one word in several texts and compares its vectors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from zoo.errors import InputError
from zoo.text import Tokenizer


@dataclass(frozen=True)
class Comparison:
    """The vectors of one word in several texts.

    Attributes:
        word: The word.
        texts: The texts.
        cosines: The cosines of the word's vectors in each pair of texts, float32 [n, n].
        neighbours: For each text, the nearest words of all texts, nearest first: (word, number of its text, cosine).
        vectors: The word's vector in each text, the mean over its tokens, float32 [n, D].
    """

    word: str
    texts: tuple[str, ...]
    cosines: np.ndarray
    neighbours: tuple[tuple[tuple[str, int, float], ...], ...]
    vectors: np.ndarray

    def __str__(self) -> str:
        lines = [f"cosines of the vectors of {self.word!r}:"]
        for number, (text, cosines, neighbours) in enumerate(
            zip(self.texts, self.cosines, self.neighbours, strict=True)
        ):
            nearest = ", ".join(f"{word} ({index}) {cosine:.2f}" for word, index, cosine in neighbours)
            lines += [f"{number}: {' '.join(f'{cosine:5.2f}' for cosine in cosines)}  {text}", f"   nearest: {nearest}"]
        return "\n".join(lines)


def words_of(tokenizer: Tokenizer, ids: Sequence[int]) -> list[tuple[str, slice]]:
    """Returns the words of a row of ids, as the tokenizer decodes them, and the ids of each as a slice."""
    ends = [len(text) for text in tokenizer.decode([list(ids[:end]) for end in range(len(ids) + 1)])]
    text = tokenizer.decode([list(ids)])[0]
    words: list[tuple[str, slice]] = []
    start = 0
    for end in range(1, len(ids) + 1):
        piece = text[ends[start] : ends[end]]
        at_boundary = end == len(ids) or not _joins(text, ends[end])
        if piece.strip() and at_boundary:
            words.append((piece.strip(), slice(start, end)))
        if at_boundary:
            start = end
    return words


def _joins(text: str, index: int) -> bool:
    """Returns whether the character at `index` belongs to the same word as the previous one."""
    return 0 < index < len(text) and text[index - 1].isalnum() and text[index].isalnum()


def compare_word(
    word: str,
    texts: Sequence[str],
    rows: Sequence[Sequence[int]],
    vectors: Sequence[np.ndarray],
    tokenizer: Tokenizer,
    count: int,
) -> Comparison:
    """Compares the vectors of a word in several texts.

    Args:
        word: The word, in any case.
        texts: The texts.
        rows: The ids of each text.
        vectors: The vectors of the ids of each text, [S, D].
        tokenizer: The tokenizer of the ids.
        count: Number of neighbours.

    Raises:
        InputError: If the word is not in one of the texts as the model reads them.
    """
    occurrences, others = [], []
    for number, (text, row, matrix) in enumerate(zip(texts, rows, vectors, strict=True)):
        words = words_of(tokenizer, row)
        place = next((index for index, (name, _) in enumerate(words) if name.lower() == word.lower()), None)
        if place is None:
            tokenized = " ".join(name for name, _ in words)
            raise InputError(f"{word!r} is not a word of {text!r}, which the model reads as {tokenized!r}.")
        span = words[place][1]
        occurrences.append(matrix[span].mean(axis=0))
        others += [
            (name, number, matrix[span].mean(axis=0))
            for index, (name, span) in enumerate(words)
            if index != place and any(character.isalnum() for character in name)
        ]
    units = np.stack([_unit(vector) for vector in occurrences])
    neighbours = []
    for unit in units:
        cosines = [(name, number, float(unit @ _unit(vector))) for name, number, vector in others]
        neighbours.append(tuple(sorted(cosines, key=lambda neighbour: -neighbour[2])[:count]))
    return Comparison(word, tuple(texts), units @ units.T, tuple(neighbours), np.stack(occurrences))


def _unit(vector: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(vector)
    return vector / norm if norm else vector
