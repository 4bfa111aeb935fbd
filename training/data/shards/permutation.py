"""Random orders of numbers that are computed where they are asked for, in no memory."""

from collections.abc import Sequence
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
        self._half = -(-max(size - 1, 1).bit_length() // 2)

    def __call__(self, numbers: Any) -> Array:
        """Returns what stands at some places of the order, [N] → [N]."""
        return in_orders([self], [numbers])[0]


def in_orders(orders: Sequence[Permutation], numbers: Sequence[Any]) -> list[Array]:
    """Returns what stands at some places of each of several orders, in less time than one after the other."""
    numbers = [np.asarray(each, np.int64) for each in numbers]
    drawn = [order._drawn for order in orders]
    found = [each if own is None else own[each] for own, each in zip(drawn, numbers, strict=True)]
    computed = [number for number, own in enumerate(drawn) if own is None]
    if computed:
        counts = [len(numbers[number]) for number in computed]
        of_each = [(orders[number].size, orders[number]._half, *orders[number]._keys) for number in computed]
        sizes, halves, *keys = np.repeat(np.array(of_each, np.uint64).T, counts, axis=1)
        places = np.concatenate([numbers[number] for number in computed]).astype(np.uint64)
        images = _permuted(places, sizes, halves, np.stack(keys)).astype(np.int64)
        for number, image in zip(computed, np.split(images, np.cumsum(counts)[:-1]), strict=True):
            found[number] = image
    return found


def _permuted(numbers: Array, sizes: Array, halves: Array, keys: Array) -> Array:
    """Returns the images of numbers in networks of so many values, of halves of so many bits, with keys [6, N]."""
    images = _encrypt(numbers, halves, keys)
    while len(outside := np.flatnonzero(images >= sizes)):
        images[outside] = _encrypt(images[outside], halves[outside], keys[:, outside])
    return images


def _encrypt(numbers: Array, halves: Array, keys: Array) -> Array:
    masks = (np.uint64(1) << halves) - np.uint64(1)
    left, right = numbers >> halves, numbers & masks
    for key in keys:
        mixed = right + key
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MULTIPLIERS[0]
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MULTIPLIERS[1]
        left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(31))) & masks)
    encrypted: Array = left << halves | right
    return encrypted
