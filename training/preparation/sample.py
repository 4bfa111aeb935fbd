"""Draws a sample of examples in one pass, piece by piece."""

import heapq
from collections.abc import Callable, Sequence

import numpy as np

# Largest size of the texts of a sample.
_MOST_BYTES = 256 << 20


class Sample:
    """A uniform sample without repetition: a random number is drawn for each example, and the smallest are kept.

    Args:
        size: Largest number of examples; fewer if their texts take more than 256 MiB.
        *seed: Non-negative integers.
    """

    def __init__(self, size: int, *seed: int):
        self._size, self._rng = size, np.random.default_rng(seed)
        self._heap: list[tuple[float, int, tuple[str, ...]]] = []  # the largest number first
        self._bytes, self._total, self._bound = 0, 0, 1.0

    def add(self, count: int, texts_of: Callable[[int], tuple[str, ...] | None]) -> None:
        """Processes the next examples; `texts_of` returns the texts of a sampled one, or `None` to skip it."""
        numbers = self._rng.random(count)
        for index in np.flatnonzero(numbers < self._bound).tolist():
            if numbers[index] < self._bound and (texts := texts_of(index)) is not None:
                heapq.heappush(self._heap, (-float(numbers[index]), self._total + index, texts))
                self._bytes += _size(texts)
                while len(self._heap) > self._size or (self._bytes > _MOST_BYTES and len(self._heap) > 1):
                    largest, _, dropped = heapq.heappop(self._heap)
                    self._bytes -= _size(dropped)
                    self._bound = -largest
        self._total += count

    def texts(self) -> list[tuple[str, ...]]:
        """Returns the texts of the sample, in the order of the corpus."""
        return [texts for _, _, texts in sorted(self._heap, key=lambda entry: entry[1])]


def _size(texts: Sequence[str]) -> int:
    return sum(map(len, texts))
