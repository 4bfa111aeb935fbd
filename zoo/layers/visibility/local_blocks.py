"""Blocks that do not see each other."""

import keras
from keras import ops

from zoo.layers.visibility.base import Range, VisibilityRule
from zoo.layers.visibility.checks import check_count


@keras.saving.register_keras_serializable(package="attention_zoo")
class LocalBlocks(VisibilityRule):
    """The query at position p sees the keys s with `⌊p / c⌋ = ⌊s / c⌋`, those of its own block.

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
        self.block_size = self.span = check_count("block_size", block_size, least=1)
        self.reach = self.block_size - 1

    def get_config(self):
        return {"block_size": self.block_size}

    def sees(self, pairs):
        return ops.equal(pairs.query // self.block_size, pairs.key // self.block_size)

    def may_see(self, blocks):
        return self._numbers(blocks.query).meets(self._numbers(blocks.key))

    def sees_all(self, blocks):
        query, key = self._numbers(blocks.query), self._numbers(blocks.key)
        return ops.logical_and(ops.equal(query.first, key.last), ops.equal(query.last, key.first))

    def _numbers(self, positions):
        return Range(*(end // self.block_size for end in positions))
