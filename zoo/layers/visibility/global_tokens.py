"""Positions that see all and are seen by all."""

import functools

import keras
from keras import ops

from zoo.layers.visibility.base import VisibilityRule
from zoo.layers.visibility.checks import check_count


@keras.saving.register_keras_serializable(package="attention_zoo")
class GlobalTokens(VisibilityRule):
    """Queries at global positions see all keys, and all queries see the keys at global positions.

    Longformer's attention is `SlidingWindow(w) | GlobalTokens([0])`; with one projection for both, not two. Under a
    causal mask, `SlidingWindow(w) | GlobalTokens(range(4))` keeps the first four tokens as attention sinks, and so does
    its rolling cache, in constant memory; positions are those in the text, where StreamingLLM counts them in the cache.

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

    reach = 0  # under a causal mask, queries at global positions see keys up to the last of these alone

    def __init__(self, positions):
        self.positions = [check_count("positions", position) for position in positions]
        self.kept_first = max(self.positions, default=-1) + 1

    def get_config(self):
        return {"positions": self.positions}

    def sees(self, pairs):
        return ops.logical_or(*(self._any(lambda p, x=x: ops.equal(x, p), x) for x in (pairs.query, pairs.key)))

    def may_see(self, blocks):
        ranges = blocks.query, blocks.key
        return ops.logical_or(*(self._any(lambda p, r=r: (r.first <= p) & (p <= r.last), r.first) for r in ranges))

    def _any(self, is_at, like):
        return functools.reduce(ops.logical_or, map(is_at, self.positions), ops.zeros_like(like, dtype="bool"))
