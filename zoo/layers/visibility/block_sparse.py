"""A fixed pattern of blocks."""

import itertools

import keras
from keras import ops

from zoo.layers.visibility.base import VisibilityRule
from zoo.layers.visibility.checks import check_count


@keras.saving.register_keras_serializable(package="attention_zoo")
class BlockSparse(VisibilityRule):
    """The query at p sees the key at s if `pattern[⌊p / c⌋][⌊s / c⌋]`, and not outside of the pattern.

    Args:
        block_size: c, a positive integer.
        pattern: Rows of booleans, one for each block of queries, with one for each block of keys.

    Raises:
        ValueError: For rows of unequal lengths, or none.

    Example:
        >>> from zoo.layers import BlockSparse, SelfAttention
        >>> SelfAttention(4, visibility=BlockSparse(64, [[True, False], [True, True]])).visibility
        BlockSparse(block_size=64, pattern=[[True, False], [True, True]])

    Reference:
        Child et al. 2019, "Generating Long Sequences with Sparse Transformers", section 5, https://arxiv.org/abs/1904.10509
    """

    def __init__(self, block_size, pattern):
        self.block_size, self.pattern = check_count("block_size", block_size, least=1), check_pattern(pattern)

    def get_config(self):
        return {"block_size": self.block_size, "pattern": self.pattern}

    def sees(self, pairs):
        rows, columns = (ops.floor_divide(positions, self.block_size) for positions in (pairs.query, pairs.key))
        return self._allowed(rows, rows, columns, columns)

    def may_see(self, blocks):
        return self._allowed(*(ops.floor_divide(x, self.block_size) for x in (*blocks.query, *blocks.key)))

    def _allowed(self, first_row, last_row, first_column, last_column):
        """Returns whether a block between the first row and column and the last ones is in the pattern."""
        rows, columns, sums = len(self.pattern), len(self.pattern[0]), [[0] * (len(self.pattern[0]) + 1)]
        for row in self.pattern:  # what is in the rectangle that ends there
            sums.append([a + b for a, b in zip(sums[-1], itertools.accumulate(row, initial=0), strict=True)])
        sums = ops.convert_to_tensor(sum(sums, []), dtype="int32")
        above, below = (ops.clip(row, 0, rows) for row in (first_row, last_row + 1))
        left, right = (ops.clip(column, 0, columns) for column in (first_column, last_column + 1))

        def count(row, column):
            return ops.take(sums, row * (columns + 1) + column)

        return count(below, right) - count(above, right) - count(below, left) + count(above, left) > 0


def check_pattern(pattern):
    """Returns a pattern as lists of plain booleans, which a configuration can hold.

    Raises:
        ValueError: If it is not a rectangle.
    """
    rows = [[bool(each) for each in row] for row in pattern]
    if not rows or not rows[0] or len({len(row) for row in rows}) > 1:
        raise ValueError(f"`pattern` must be rows of booleans, all of one length. Received: pattern={pattern!r}.")
    return rows
