"""A sample of examples that are seen once, one piece after the other."""

import heapq
from collections.abc import Callable, Sequence

import numpy as np

# What the texts of a sample take, whatever its size.
_MOST_BYTES = 256 << 20


class Sample:
    """A uniform sample without repetition: the examples with the smallest of random numbers, one drawn for each.

    Args:
        size: Examples, at most; fewer if their texts take more than 256 MiB.
        *seed: Non-negative integers.
    """

    def __init__(self, size: int, *seed: int):
        self._size, self._rng = size, np.random.default_rng(seed)
        self._heap: list[tuple[float, int, tuple[str, ...]]] = []  # the largest number first
        self._bytes, self._seen, self._bound = 0, 0, 1.0

    def see(self, count: int, texts_of: Callable[[int], tuple[str, ...] | None]) -> None:
        """Sees the next examples, and asks for the texts of those that it takes; it does without `None`."""
        numbers = self._rng.random(count)
        for place in np.flatnonzero(numbers < self._bound).tolist():
            if numbers[place] < self._bound and (texts := texts_of(place)) is not None:
                heapq.heappush(self._heap, (-float(numbers[place]), self._seen + place, texts))
                self._bytes += _size(texts)
                while len(self._heap) > self._size or (self._bytes > _MOST_BYTES and len(self._heap) > 1):
                    largest, _, dropped = heapq.heappop(self._heap)
                    self._bytes -= _size(dropped)
                    self._bound = -largest
        self._seen += count

    def texts(self) -> list[tuple[str, ...]]:
        """Returns the texts of the sample, in the order of the corpus."""
        return [texts for _, _, texts in sorted(self._heap, key=lambda entry: entry[1])]


def _size(texts: Sequence[str]) -> int:
    return sum(map(len, texts))
