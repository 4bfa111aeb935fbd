"""Visibility rules by distance: windows, dilated windows, global tokens, local blocks."""

import functools

import keras
from keras import ops

from zoo.layers.visibility.base import Range, VisibilityRule, check_count


@keras.saving.register_keras_serializable(package="attention_zoo")
class SlidingWindow(VisibilityRule):
    """The query at position p attends to the keys `p − left ≤ s ≤ p + right`; of long inputs, the others are skipped.

    Args:
        left: Number of earlier keys, an integer, 0 or more.
        right: Number of later keys. Default: `left`.

    Raises:
        ValueError: For other values.

    Example:
        >>> from zoo.layers import MultiHeadAttention, SlidingWindow
        >>> MultiHeadAttention(num_heads=2, key_dim=4, visibility=SlidingWindow(3, 0)).visibility
        SlidingWindow(left=3, right=0)

    Reference:
        Beltagy et al. 2020, "Longformer: The Long-Document Transformer", section 3.1, https://arxiv.org/abs/2004.05150
    """

    is_relative = True

    def __init__(self, left, right=None):
        self.left = check_count("left", left)
        self.right = check_count("right", left if right is None else right)

    @property
    def span(self):
        return self.left + self.right + 1

    @property
    def reach(self):
        return self.left

    def allows(self, pairs):
        return ops.logical_and(pairs.key >= pairs.query - self.left, pairs.key <= pairs.query + self.right)

    def may_allow(self, blocks):
        reached = blocks.key.last >= blocks.query.first - self.left
        return ops.logical_and(reached, blocks.key.first <= blocks.query.last + self.right)

    def allows_all(self, blocks):
        reached = blocks.key.first >= blocks.query.last - self.left
        return ops.logical_and(reached, blocks.key.last <= blocks.query.first + self.right)


@keras.saving.register_keras_serializable(package="attention_zoo")
class Dilated(VisibilityRule):
    """The query at position p attends to the keys `p + i · dilation` for `|i| ≤ window`.

    Args:
        window: Number of keys on either side, an integer, 0 or more.
        dilation: The step between them, a positive integer.

    Raises:
        ValueError: For other values.

    Example:
        >>> from zoo.layers import Dilated, SelfAttention
        >>> SelfAttention(4, visibility=Dilated(window=2, dilation=3)).visibility
        Dilated(window=2, dilation=3)

    Reference:
        Beltagy et al. 2020, "Longformer: The Long-Document Transformer", section 3.1 ("Dilated Sliding Window"),
        https://arxiv.org/abs/2004.05150
    """

    is_relative = True

    def __init__(self, window, dilation):
        self.window, self.dilation = check_count("window", window), check_count("dilation", dilation, least=1)
        self._distance = self.window * self.dilation

    @property
    def reach(self):
        return self._distance

    def allows(self, pairs):
        steps = ops.abs(pairs.query - pairs.key)
        return ops.logical_and(steps <= self._distance, ops.equal(steps % self.dilation, 0))

    def may_allow(self, blocks):
        reached = blocks.key.last >= blocks.query.first - self._distance
        return ops.logical_and(reached, blocks.key.first <= blocks.query.last + self._distance)


@keras.saving.register_keras_serializable(package="attention_zoo")
class GlobalTokens(VisibilityRule):
    """Queries at global positions attend to all keys, and all queries attend to the keys at global positions.

    Longformer's attention is `SlidingWindow(w) | GlobalTokens([0])`, here with one projection for both instead of two.
    Under a causal mask, `SlidingWindow(w) | GlobalTokens(range(4))` keeps the first four tokens as attention sinks, and
    so does its rolling cache, in constant memory. Positions are those in the text (StreamingLLM: those in the cache).

    Args:
        positions: The global positions, integers, 0 or more.

    Raises:
        ValueError: For other values.

    Example:
        >>> from zoo.layers import GlobalTokens, MultiHeadAttention, SlidingWindow
        >>> MultiHeadAttention(num_heads=2, key_dim=4, visibility=SlidingWindow(2) | GlobalTokens([0])).visibility
        (SlidingWindow(left=2, right=2) | GlobalTokens(positions=[0]))

    Reference:
        Beltagy et al. 2020, "Longformer: The Long-Document Transformer", section 3.1 ("Global Attention"),
        https://arxiv.org/abs/2004.05150; sinks: Xiao et al. 2023, "Efficient Streaming Language Models with Attention
        Sinks", section 3.2, https://arxiv.org/abs/2309.17453
    """

    reach = 0  # under a causal mask, queries at global positions attend to no keys after the last of these positions

    def __init__(self, positions):
        self.positions = [check_count("positions", position) for position in positions]

    @property
    def kept_first(self):
        return max(self.positions, default=-1) + 1

    def allows(self, pairs):
        return ops.logical_or(*(self._at_any(lambda p, x=x: ops.equal(x, p), x) for x in (pairs.query, pairs.key)))

    def may_allow(self, blocks):
        ranges = blocks.query, blocks.key
        return ops.logical_or(*(self._at_any(lambda p, r=r: (r.first <= p) & (p <= r.last), r.first) for r in ranges))

    def _at_any(self, is_at, like):
        """Returns whether `is_at(position)` of any global position, boolean in the shape of `like`."""
        return functools.reduce(ops.logical_or, map(is_at, self.positions), ops.zeros_like(like, dtype="bool"))


@keras.saving.register_keras_serializable(package="attention_zoo")
class LocalBlocks(VisibilityRule):
    """The query at position p attends to the keys of its own block, the keys s with `⌊p / c⌋ = ⌊s / c⌋`.

    Args:
        block_size: c, a positive integer.

    Raises:
        ValueError: For another value.

    Example:
        >>> from zoo.layers import LocalBlocks, SelfAttention
        >>> SelfAttention(4, visibility=LocalBlocks(64)).visibility
        LocalBlocks(block_size=64)

    Reference:
        Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", section 4.2.4 ("local attention"),
        https://arxiv.org/abs/1801.10198
    """

    def __init__(self, block_size):
        self.block_size = check_count("block_size", block_size, least=1)

    @property
    def span(self):
        return self.block_size

    @property
    def reach(self):
        return self.block_size - 1

    def allows(self, pairs):
        return ops.equal(pairs.query // self.block_size, pairs.key // self.block_size)

    def may_allow(self, blocks):
        return self._block_numbers(blocks.query).meets(self._block_numbers(blocks.key))

    def allows_all(self, blocks):
        query, key = self._block_numbers(blocks.query), self._block_numbers(blocks.key)
        return ops.logical_and(ops.equal(query.first, key.last), ops.equal(query.last, key.first))

    def _block_numbers(self, positions):
        return Range(*(end // self.block_size for end in positions))
