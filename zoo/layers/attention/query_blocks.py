"""Queries cut into blocks, each with a window of the keys."""

import dataclasses
from typing import Any

from keras import ops

from zoo.layers.positions.base import consecutive
from zoo.row_selection import take


@dataclasses.dataclass(frozen=True)
class QueryBlocks:
    """A cut of T queries into C blocks of R rows, each with a window of K of the S keys.

    The window of block c begins at the position `first_key + c · R`. Windows may reach beyond either end of the keys,
    and blocks beyond either end of the queries: the rows there are copies of the nearest row, and must be masked or
    discarded.

    Args:
        count: C, an integer or a scalar tensor.
        rows: R, an integer.
        window: K, an integer.
        first_key: Position of the first window, an integer or a scalar tensor.
        row_positions: Position of each row, counted from the first key of its window, int32 [R].
        skipped: Number of rows before the first query, an integer or a scalar tensor.
    """

    count: Any
    rows: int
    window: int
    first_key: Any
    row_positions: Any
    skipped: Any = 0

    @classmethod
    def whole(cls, length, keys, start):
        """Returns a single block of all T queries (an integer), the first at `start`, with a window of all keys."""
        return cls(count=1, rows=length, window=keys, first_key=0, row_positions=consecutive(start, length))

    @classmethod
    def aligned(cls, length, start, size):
        """Returns blocks that begin at multiples of their size, with the keys at the positions of their queries.

        Since the first query may be anywhere in its block, there may be one block more than the queries would fill.

        T is an integer or a scalar tensor, `start` is the position of the first query, a scalar tensor, and `size` is
        an integer.
        """
        first = start // size * size
        if isinstance(length, int) and length == 1:
            return cls(count=1, rows=1, window=size, first_key=first, row_positions=consecutive(start - first, 1))
        count = (length + size - 2) // size + 1
        return cls(count, size, size, first, row_positions=consecutive(0, size), skipped=start - first)

    def cut_rows(self, tensor):
        """Returns the rows of each block, [..., C, R, D] from [..., T, D]."""
        shape, total = ops.shape(tensor), self.count * self.rows
        if not (_equal(shape[-2], total) and _equal(self.skipped, 0)):
            tensor = take_nearest_rows(tensor, consecutive(-self.skipped, total))
        return ops.reshape(tensor, (*shape[:-2], self.count, self.rows, shape[-1]))

    def join_rows(self, blocks, length):
        """Returns the inverse of `cut_rows`, [..., T, D] from [..., C, R, D]."""
        shape = ops.shape(blocks)
        joined = ops.reshape(blocks, (*shape[:-3], shape[-3] * shape[-2], shape[-1]))
        if _equal(self.skipped, 0):
            return joined[..., :length, :]
        return take_nearest_rows(joined, consecutive(self.skipped, length))

    def cut_keys(self, tensor):
        """Returns the keys in each window, [..., C, K, D] from [..., S, D]."""
        if _equal(self.count, 1) and _equal(self.first_key, 0) and _equal(ops.shape(tensor)[-2], self.window):
            return ops.expand_dims(tensor, -3)
        keys = take_nearest_rows(tensor, ops.reshape(self.key_positions(), (-1,)))
        shape = ops.shape(keys)
        return ops.reshape(keys, (*shape[:-2], self.count, self.window, shape[-1]))

    def first_keys(self):
        """Returns the position of each window, int32 [C]."""
        return ops.arange(self.count, dtype="int32") * self.rows + self.first_key

    def key_positions(self):
        """Returns the position of each key in each window, int32 [C, K]; some are outside the keys."""
        return self.first_keys()[:, None] + ops.arange(self.window, dtype="int32")

    def cut_pairs(self, tensor):
        """Returns the pairs of each block, [..., C, R, K] from [..., T, S]; an axis of size 1 is broadcast."""
        tensor = with_spare_row(ops.swapaxes(with_spare_row(ops.swapaxes(tensor, -1, -2)), -1, -2))
        *leading, length, keys = ops.shape(tensor)
        rows = ops.clip(consecutive(-self.skipped, self.count * self.rows), 0, length - 1)
        columns = ops.clip(self.key_positions(), 0, keys - 1)
        indices = ops.reshape(rows * keys, (self.count, self.rows, 1)) + columns[:, None]  # [C, R, K]
        pairs = take(ops.reshape(tensor, (*leading, length * keys)), ops.reshape(indices, (-1,)), axis=-1)
        return ops.reshape(pairs, (*leading, self.count, self.rows, self.window))

    def spread(self, weights, length, keys):
        """Returns the weights of all pairs, [..., T, S] from [..., C, R, K], with zeros outside the windows."""
        columns = ops.arange(keys, dtype="int32") - self.first_keys()[:, None]  # [C, S]
        inside = ops.logical_and(columns >= 0, columns < self.window)[:, None]
        columns = ops.clip(columns, 0, self.window - 1) + consecutive(0, self.count)[:, None] * self.window
        # The windows are joined side by side in each row, so that one gather takes the columns of all blocks.
        rows = ops.swapaxes(weights, -3, -2)  # [..., R, C, K]
        shape = ops.shape(rows)
        rows = ops.reshape(rows, (*shape[:-2], self.count * self.window))
        spread = take(rows, ops.reshape(columns, (-1,)), axis=-1)
        spread = ops.swapaxes(ops.reshape(spread, (*shape[:-2], self.count, keys)), -3, -2)  # [..., C, R, S]
        return self.join_rows(ops.where(inside, spread, ops.zeros_like(spread)), length)


def take_nearest_rows(tensor, indices):
    """Returns the rows of `tensor` [..., L, D] at `indices` [P], which are clipped to 0 … L − 1, [..., P, D]."""
    last = ops.shape(tensor)[-2] - 1
    return take(
        with_spare_row(tensor), ops.clip(indices, 0, last if isinstance(last, int) else ops.maximum(last, 0)), axis=-2
    )


def with_spare_row(tensor):
    """Returns `tensor` [..., L, D], with a row of zeros after the others if L is unknown and may be zero."""
    *leading, length, size = ops.shape(tensor)
    if isinstance(length, int):
        return tensor
    return ops.concatenate([tensor, ops.zeros((*leading, 1, size), dtype=tensor.dtype)], axis=-2)


def _equal(size, expected):
    """Returns whether two sizes are known and equal."""
    return isinstance(size, int) and isinstance(expected, int) and size == expected
