"""Visibility rules by blocks of keys: block-sparse patterns, summary tokens, and the blocks with the highest scores."""

import itertools

import keras
from keras import ops

from zoo.layers.visibility.base import VisibilityRule, check_count
from zoo.row_selection import take


@keras.saving.register_keras_serializable(package="attention_zoo")
class BlockSparse(VisibilityRule):
    """The query at position p attends to the key at s if `pattern[⌊p / c⌋][⌊s / c⌋]`, and to none outside the pattern.

    Args:
        block_size: c, a positive integer.
        pattern: A row for each block of queries, with a boolean for each block of keys.

    Raises:
        ValueError: If there are no rows, or their lengths differ.

    Example:
        >>> from zoo.layers import BlockSparse, SelfAttention
        >>> SelfAttention(4, visibility=BlockSparse(64, [[True, False], [True, True]])).visibility
        BlockSparse(block_size=64, pattern=[[True, False], [True, True]])

    Reference:
        Child et al. 2019, "Generating Long Sequences with Sparse Transformers", section 5, https://arxiv.org/abs/1904.10509
    """

    def __init__(self, block_size, pattern):
        self.block_size, self.pattern = check_count("block_size", block_size, least=1), check_pattern(pattern)

    def allows(self, pairs):
        rows, columns = (ops.floor_divide(positions, self.block_size) for positions in (pairs.query, pairs.key))
        return self._allowed(rows, rows, columns, columns)

    def may_allow(self, blocks):
        return self._allowed(*(ops.floor_divide(x, self.block_size) for x in (*blocks.query, *blocks.key)))

    def _allowed(self, first_row, last_row, first_column, last_column):
        """Returns whether any block of a rectangle, from the first to the last row and column, is in the pattern."""
        rows, columns, sums = len(self.pattern), len(self.pattern[0]), [[0] * (len(self.pattern[0]) + 1)]
        for row in self.pattern:  # sums over the rectangles that begin at the origin
            sums.append([a + b for a, b in zip(sums[-1], itertools.accumulate(row, initial=0), strict=True)])
        sums = ops.convert_to_tensor(sum(sums, []), dtype="int32")
        above, below = (ops.clip(row, 0, rows) for row in (first_row, last_row + 1))
        left, right = (ops.clip(column, 0, columns) for column in (first_column, last_column + 1))

        def count(row, column):
            return take(sums, row * (columns + 1) + column)

        return count(below, right) - count(above, right) - count(below, left) + count(above, left) > 0


def check_pattern(pattern):
    """Returns a pattern as lists of Python booleans.

    Raises:
        ValueError: If there are no rows, or their lengths differ.
    """
    rows = [[bool(allowed) for allowed in row] for row in pattern]
    if not rows or not rows[0] or len({len(row) for row in rows}) > 1:
        raise ValueError(f"`pattern` must be rows of booleans of equal lengths. Received: pattern={pattern!r}.")
    return rows


@keras.saving.register_keras_serializable(package="attention_zoo")
class SummaryTokens(VisibilityRule):
    """Queries attend to the last `count` keys of each block, `s mod c ≥ c − count`, which summarise the block.

    The fixed pattern of Sparse Transformers is `Causal() & (LocalBlocks(c) | SummaryTokens(c, count))`: information
    flows from any key to any later query in two layers, each of which compares a query with `c + count · S / c` keys.

    Args:
        block_size: c, a positive integer.
        count: Number of summary keys in a block, an integer from 1 to `block_size`.

    Raises:
        ValueError: For other values.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import Causal, DotAttention, LocalBlocks, SummaryTokens
        >>> layer = DotAttention(visibility=Causal() & (LocalBlocks(2) | SummaryTokens(2, 1)))
        >>> _, weights = layer(np.ones((1, 5, 3)), np.ones((1, 5, 3)), return_attention_scores=True)
        >>> print(np.round(weights[0, 4], 2))
        [0.   0.33 0.   0.33 0.33]

    Reference:
        Child et al. 2019, "Generating Long Sequences with Sparse Transformers", section 4.3 (fixed attention, c there
        is `count`), https://arxiv.org/abs/1904.10509
    """

    def __init__(self, block_size, count):
        self.block_size = check_count("block_size", block_size, least=1)
        self.count = check_count("count", count, least=1)
        if count > block_size:
            raise ValueError(f"`count` must be at most `block_size`, {block_size}. Received: count={count}.")

    def allows(self, pairs):
        return self._is_summary(pairs.key)

    def may_allow(self, blocks):
        first, last = blocks.key
        return ops.logical_or(self._is_summary(last), first // self.block_size < last // self.block_size)

    def allows_all(self, blocks):
        first, last = blocks.key
        return ops.logical_and(self._is_summary(first), ops.equal(first // self.block_size, last // self.block_size))

    def _is_summary(self, positions):
        return positions % self.block_size >= self.block_size - self.count


@keras.saving.register_keras_serializable(package="attention_zoo")
class TopBlocks(VisibilityRule):
    """A query attends to the keys of the `count` blocks with the highest gates: `block_j = {jc … jc + c − 1}`.

    `gate_j = mean_s score(q, k_s)` over the keys s of block j that all other rules and masks allow: for dot products
    `⟨q, mean_s k_s⟩`. The query's own block always counts among them, if any of its keys are allowed; blocks without
    allowed keys are never chosen. So later keys stay hidden under a causal mask, and a cache chooses the same blocks as
    the whole sequence. Blocks whose gate equals the last chosen one are chosen, too. Each head chooses independently.
    The choice has no weights and no gradient, and may change with the rounding of scores.

    The rule combines by `&` and chooses among the keys that the other rule allows. All scores are computed, so that
    time and memory are those of full attention.

    Args:
        block_size: c, a positive integer.
        count: Number of blocks, a positive integer.

    Raises:
        ValueError: For other values, and if combined by `|` or with another rule that chooses.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import Causal, DotAttention, TopBlocks
        >>> inputs = np.array([[[2.0], [1.0], [-1.0], [-2.0], [3.0]]], "float32")
        >>> layer = DotAttention(visibility=Causal() & TopBlocks(2, 2))
        >>> _, weights = layer(inputs, inputs, return_attention_scores=True)
        >>> print(np.round(weights[0, 4], 2))  # of the blocks (2, 1) and (-1, -2) the first, and the query's own
        [0.05 0.   0.   0.   0.95]

    Reference:
        Lu et al. 2025, "MoBA: Mixture of Block Attention for Long-Context LLMs", section 2.2, equations 5 to 7,
        https://arxiv.org/abs/2502.13189
    """

    chooses = True

    def __init__(self, block_size, count):
        self.block_size = check_count("block_size", block_size, least=1)
        self.count = check_count("count", count, least=1)

    def allows(self, pairs):
        return ops.ones((1, 1, 1, 1), dtype="bool")

    def choose(self, scores, allowed, query_positions):
        length = ops.shape(scores)[-1]
        num_blocks = -(-length // self.block_size)
        padding = num_blocks * self.block_size - length
        values = ops.where(allowed, ops.cast(ops.stop_gradient(scores), "float32"), 0.0)
        counts = self._sums(ops.cast(allowed, "float32"), padding, num_blocks)
        own = ops.arange(num_blocks, dtype="int32") == ops.floor_divide(query_positions, self.block_size)[:, None]
        gates = ops.where(own, float("inf"), self._sums(values, padding, num_blocks) / ops.maximum(counts, 1.0))
        gates = ops.where(counts > 0, gates, -float("inf"))
        chosen = gates >= self._last_chosen(gates)
        # `ops.repeat` is not used, since Keras on PyTorch cannot infer its shape without computing it.
        *leading, _ = ops.shape(chosen)
        chosen = ops.broadcast_to(chosen[..., None], (*leading, num_blocks, self.block_size))
        return ops.reshape(chosen, (*leading, num_blocks * self.block_size))[..., :length]

    def _sums(self, values, padding, num_blocks):
        """Returns the sum of each block, [..., T, J] from [..., T, S]."""
        *leading, _ = ops.shape(values)
        padded = ops.concatenate([values, ops.zeros((*leading, padding), dtype=values.dtype)], axis=-1)
        return ops.sum(ops.reshape(padded, (*leading, num_blocks, self.block_size)), axis=-1)

    def _last_chosen(self, gates):
        """Returns the lowest gate of a chosen block, [..., T, 1]."""
        blocks = gates.shape[-1]
        if isinstance(blocks, int) and blocks <= self.count:
            return ops.full((1,), -float("inf"), dtype=gates.dtype)
        if not isinstance(blocks, int):  # there may be fewer than `count`
            *leading, _ = ops.shape(gates)
            gates = ops.concatenate([gates, ops.full((*leading, self.count), -float("inf"), gates.dtype)], axis=-1)
        return ops.top_k(gates, self.count)[0][..., -1:]
