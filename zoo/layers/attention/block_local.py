"""Attention within blocks of positions."""

import keras

from zoo.layers.attention.blocked import BlockedAttention
from zoo.layers.attention.query_blocks import QueryBlocks
from zoo.layers.core.checks import check_size
from zoo.layers.visibility.windows import LocalBlocks


@keras.saving.register_keras_serializable(package="attention_zoo")
class BlockLocalAttention(BlockedAttention):
    """Multi-head attention within blocks: the query at position p attends to the keys s with `⌊p / c⌋ = ⌊s / c⌋`.

    With a causal mask it attends only to those up to p. The blocks of c positions begin at position 0 of the keys,
    wherever the queries are. Time and memory are O((T + S) · c), with `return_attention_scores` O(T · S). A step with a
    cache reads one block of it.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for keys, and by default for queries; a positive integer.
        block_size: c, a positive integer.
        value_dim: Size of each head for values. Default: `key_dim`.
        **kwargs: Other options of `MultiHeadAttention`. `score` may be any but `LocationScore`. If `positions` act on
            scores or values, they must depend on distances alone, like all positions of this library.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S].

    Raises:
        ValueError: For a `block_size` that is not a positive integer, and for a `LocationScore`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import BlockLocalAttention
        >>> inputs = np.ones((1, 4, 8), "float32")
        >>> layer = BlockLocalAttention(num_heads=2, key_dim=4, block_size=2)
        >>> _, weights = layer(inputs, inputs, return_attention_scores=True)
        >>> print(np.round(weights[0, 0], 2))
        [[0.5 0.5 0.  0. ]
         [0.5 0.5 0.  0. ]
         [0.  0.  0.5 0.5]
         [0.  0.  0.5 0.5]]

    Reference:
        Liu et al. 2018, "Generating Wikipedia by Summarizing Long Sequences", section 4.2.4 ("local attention"),
        https://arxiv.org/abs/1801.10198; this is the identity permutation of
        Qiu et al. 2020, "Blockwise Self-Attention for Long Document Understanding", https://arxiv.org/abs/1911.02972
    """

    saved_options = ("block_size",)

    def __init__(self, num_heads, key_dim, block_size, value_dim=None, **kwargs):
        self.block_size = check_size("block_size", block_size)
        super().__init__(num_heads, key_dim, value_dim, **kwargs)

    @property
    def rule(self):
        return LocalBlocks(self.block_size)

    def blocks(self, length, start, causal):
        return QueryBlocks.aligned(length, start, self.block_size)
