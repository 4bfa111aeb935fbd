"""Lookup tables of numbers as constants of a graph, without resources that a server would have to initialize."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

# Rows in a page of a table of code points; most pages are equal to another.
_PAGE = 256
# Odd multipliers that spread the bits of a key over the upper bits of the product (Knuth, volume 3, section 6.4).
_FOR_BUCKETS, _FOR_SLOTS = -0x61C8864680B583EB, -0x3D4D51C2D82B14B1
_KEYS_PER_BUCKET = 4
_NONE = -1


class PagedTable:
    """A small number for each of many indices; equal pages of the table are stored once.

    Args:
        values: The numbers, uint8 [N], N a multiple of 256.
    """

    def __init__(self, values: np.ndarray):
        pages, page_of = np.unique(values.reshape(-1, _PAGE), axis=0, return_inverse=True)
        self._pages, self._page_of = pages.reshape(-1), page_of.reshape(-1)  # NumPy 2.0 returns [N, 1]

    def __call__(self, indices: tf.Tensor) -> tf.Tensor:
        """Returns the numbers of indices, int32 of any shape, as int32."""
        page = tf.gather(tf.constant(self._page_of.astype(np.int32)), indices // _PAGE)
        return tf.cast(tf.gather(tf.constant(self._pages), page * _PAGE + indices % _PAGE), tf.int32)


class PairTable:
    """The number of each pair in a list, and −1 for other pairs: a perfect hash by displacement.

    The keys of a bucket share a seed, chosen so that all keys have different slots. A lookup reads the seed of the
    bucket and one slot.

    Args:
        pairs: The distinct pairs, int64 [P, 2].
        size: All numbers in pairs that are looked up are from 0 to `size - 1`.
        first: The number of the first pair.

    Reference:
        Belazzougui et al. 2009, "Hash, Displace, and Compress", section 2, https://doi.org/10.1007/978-3-642-04128-0_61
    """

    def __init__(self, pairs: np.ndarray, size: int, first: int = 0):
        self._size = size
        keys = pairs[:, 0].astype(np.int64) * self._size + pairs[:, 1]
        self._bucket_bits = max(2, (len(keys) // _KEYS_PER_BUCKET).bit_length())
        self._slot_bits = max(2, (2 * len(keys)).bit_length())
        buckets = _upper_bits(keys * _FOR_BUCKETS, self._bucket_bits)
        self._seeds = np.zeros(1 << self._bucket_bits, np.int64)
        self._keys = np.full(1 << self._slot_bits, _NONE, np.int64)
        self._numbers = np.full(1 << self._slot_bits, _NONE, np.int32)
        order = np.argsort(buckets, kind="stable")
        starts = np.flatnonzero(np.diff(buckets[order], prepend=-1))
        for members in sorted(np.split(order, starts[1:]), key=len, reverse=True):
            self._place(buckets[members[:1]], keys[members], members + first)

    def _place(self, bucket: np.ndarray, keys: np.ndarray, numbers: np.ndarray) -> None:
        """Assigns slots to the keys of a bucket, by the first seed for which the slots are free and distinct."""
        seed = np.zeros(1, np.int64)
        while len(keys):
            slots = _upper_bits(keys * (np.int64(_FOR_SLOTS) * (2 * seed + 1)), self._slot_bits)
            if (self._keys[slots] == _NONE).all() and len(set(slots.tolist())) == len(slots):
                self._seeds[bucket], self._keys[slots], self._numbers[slots] = seed, keys, numbers
                return
            seed += 1

    def __call__(self, left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        """Returns the numbers of pairs, int32, given tensors of their left and right halves."""
        key = tf.cast(left, tf.int64) * self._size + tf.cast(right, tf.int64)
        seed = tf.gather(tf.constant(self._seeds), _upper_bits(key * _FOR_BUCKETS, self._bucket_bits))
        slot = _upper_bits(key * (_FOR_SLOTS * (2 * seed + 1)), self._slot_bits)
        is_in_table = tf.equal(tf.gather(tf.constant(self._keys), slot), key)
        return tf.where(is_in_table, tf.gather(tf.constant(self._numbers), slot), _NONE)


class StringTable:
    """The number of each of some strings, and −1 for others, by search in their sorted fingerprints.

    Args:
        numbers: The number of each string; there is at least one.
    """

    def __init__(self, numbers: Mapping[bytes, int]):
        strings, values = np.array(list(numbers), dtype=object), np.array(list(numbers.values()), np.int32)
        fingerprints = self._fingerprints(tf.constant(strings)).numpy()
        order = np.argsort(fingerprints)
        self._sorted, self._strings, self._numbers = fingerprints[order], strings[order], values[order]

    @staticmethod
    def _fingerprints(strings: tf.Tensor) -> tf.Tensor:
        return tf.strings.to_hash_bucket_fast(strings, np.iinfo(np.int64).max)

    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        """Returns the numbers of strings [N], int32 [N]."""
        place = tf.searchsorted(tf.constant(self._sorted), self._fingerprints(strings))
        place = tf.minimum(place, len(self._sorted) - 1)
        is_in_table = tf.gather(tf.constant(self._strings), place) == strings
        return tf.where(is_in_table, tf.gather(tf.constant(self._numbers), place), _NONE)


def _upper_bits(products: Any, bits: int) -> Any:
    """Returns the upper bits of int64 numbers of NumPy or TensorFlow as numbers from 0 to 2^bits − 1."""
    return products // (1 << (64 - bits)) + (1 << (bits - 1))
