"""Random orders of numbers that are computed where they are asked for, in no memory."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_ROUNDS = 6
# Up to here an order is drawn as a whole, in less time than the rounds take for a batch.
_DRAWN = 4096
_MULTIPLIERS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)


class Permutation:
    """A random order of the numbers from 0 to `size` - 1, in constant memory for many numbers.

    It is a Feistel network over the least even number of bits that `size` fits into:

        left, right = right, left ⊕ mix(right + key)

    in each of six rounds, with a key each; mix is the finaliser of SplitMix64. What falls beyond `size` goes through it
    again until it does not ("cycle walking"), which keeps it a bijection. Up to 4,096 numbers are drawn by NumPy.

    Args:
        size: How many numbers there are.
        *seed: Non-negative integers; others give another order.

    Example:
        >>> order = Permutation(5, 1, 2)
        >>> sorted(order(range(5)).tolist())
        [0, 1, 2, 3, 4]

    Reference:
        Black and Rogaway 2002, Ciphers with Arbitrary Finite Domains, sections 3 and 4.
    """

    def __init__(self, size: int, *seed: int):
        self.size = size
        rng = np.random.default_rng(seed)
        self._drawn: Array | None = rng.permutation(size) if size <= _DRAWN else None
        self._keys = rng.integers(2**64, size=_ROUNDS, dtype=np.uint64)
        half = -(-max(size - 1, 1).bit_length() // 2)
        self._half, self._mask = np.uint64(half), np.uint64((1 << half) - 1)

    def __call__(self, numbers: Any) -> Array:
        """Returns what stands at some places of the order, [N] → [N]."""
        numbers = np.asarray(numbers, np.int64)
        if self._drawn is not None:
            drawn: Array = self._drawn[numbers]
            return drawn
        images = self._encrypt(numbers.astype(np.uint64))
        while len(outside := np.flatnonzero(images >= self.size)):
            images[outside] = self._encrypt(images[outside])
        return images.astype(np.int64)

    def _encrypt(self, numbers: Array) -> Array:
        left, right = numbers >> self._half, numbers & self._mask
        for key in self._keys:
            mixed = right + key
            mixed = (mixed ^ (mixed >> np.uint64(30))) * _MULTIPLIERS[0]
            mixed = (mixed ^ (mixed >> np.uint64(27))) * _MULTIPLIERS[1]
            left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(31))) & self._mask)
        return left << self._half | right
