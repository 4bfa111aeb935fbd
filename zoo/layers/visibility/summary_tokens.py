"""The last positions of each block, which all see."""

import keras
from keras import ops

from zoo.layers.visibility.base import VisibilityRule
from zoo.layers.visibility.checks import check_count


@keras.saving.register_keras_serializable(package="attention_zoo")
class SummaryTokens(VisibilityRule):
    """Queries see the last `count` keys of each block, `s mod c ≥ c − count`, which sum it up for all others.

    The fixed pattern of Sparse Transformers is `Causal() & (LocalBlocks(c) | SummaryTokens(c, count))`: any key reaches
    any later query in two layers, of which each compares a query with `c + count · S / c` keys.

    Args:
        block_size: c, a positive integer.
        count: How many keys of a block, an integer from 1 to `block_size`.

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

    def get_config(self):
        return {"block_size": self.block_size, "count": self.count}

    def sees(self, pairs):
        return self._is_summary(pairs.key)

    def may_see(self, blocks):
        first, last = blocks.key
        return ops.logical_or(self._is_summary(last), first // self.block_size < last // self.block_size)

    def sees_all(self, blocks):
        first, last = blocks.key
        return ops.logical_and(self._is_summary(first), ops.equal(first // self.block_size, last // self.block_size))

    def _is_summary(self, positions):
        return positions % self.block_size >= self.block_size - self.count
