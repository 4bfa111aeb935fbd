"""Random permutations that are computed element by element, in constant memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_ROUNDS = 6
# Up to this size a permutation is drawn as a whole, which is faster than the rounds for a batch.
_DRAWN = 4096
_MULTIPLIERS = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)


class Permutation:
    """A random permutation of the numbers from 0 to `size` - 1, in constant memory for large sizes.

    It is a Feistel network over the least even number of bits that `size` fits into:

        left, right = right, left ⊕ mix(right + key)

    in each of six rounds, with a key each; mix is the finaliser of SplitMix64. Results beyond `size` are encrypted
    again until they are below it ("cycle walking"), so that it is a bijection. NumPy draws orders of up to 4,096.

    Args:
        size: Number of elements.
        *seed: Non-negative integers.

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
        """Returns the images of some numbers, [N] → [N]."""
        return in_orders([self], [numbers])[0]


def in_orders(orders: Sequence[Permutation], numbers: Sequence[Any]) -> list[Array]:
    """Returns the images of some numbers in each of several permutations, faster than one after the other."""
    numbers = [np.asarray(inputs, np.int64) for inputs in numbers]
    drawn = [order._drawn for order in orders]
    outputs = [inputs if table is None else table[inputs] for table, inputs in zip(drawn, numbers, strict=True)]
    computed = [index for index, table in enumerate(drawn) if table is None]
    if computed:
        counts = [len(numbers[index]) for index in computed]
        parameters = [(orders[index].size, orders[index]._half, *orders[index]._keys) for index in computed]
        sizes, halves, *keys = np.repeat(np.array(parameters, np.uint64).T, counts, axis=1)
        inputs = np.concatenate([numbers[index] for index in computed]).astype(np.uint64)
        images = _permuted(inputs, sizes, halves, np.stack(keys)).astype(np.int64)
        for index, image in zip(computed, np.split(images, np.cumsum(counts)[:-1]), strict=True):
            outputs[index] = image
    return outputs


def _permuted(numbers: Array, sizes: Array, halves: Array, keys: Array) -> Array:
    """Returns the images of numbers in networks with `sizes` values, halves of `halves` bits and keys [6, N]."""
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
