"""Attention to the keys in a window around each query."""

import keras
from keras import ops

from zoo.layers.attention.blocked import BlockedAttention
from zoo.layers.attention.query_blocks import QueryBlocks
from zoo.layers.core.checks import check_size
from zoo.layers.visibility.windows import SlidingWindow

# Smallest number of queries in a block: smaller matrix products are slow.
MIN_ROWS = 32


@keras.saving.register_keras_serializable(package="attention_zoo")
class SlidingWindowAttention(BlockedAttention):
    """Multi-head attention in which the query at position p attends to the keys s with `|p − s| ≤ window`.

    With a causal mask it attends to those with `p − window ≤ s ≤ p`. Time and memory are O((T + S) · window), with
    `return_attention_scores` O(T · S). A step with a cache reads its own key and `window` keys of the cache. The w of
    the paper counts both sides: it is 2 · `window`.

    Args:
        num_heads: N, a positive integer.
        key_dim: Size of each head for keys, and by default for queries; a positive integer.
        window: Number of keys on each side of a query, a positive integer.
        value_dim: Size of each head for values. Default: `key_dim`.
        **kwargs: Other options of `MultiHeadAttention`. `score` may be any but `LocationScore`. If `positions` act on
            scores or values, they must depend on distances alone, like all positions of this library.

    Call arguments, masking and results: see `BaseAttention`; weights are [B, N, T, S].

    Raises:
        ValueError: For a `window` that is not a positive integer, and for a `LocationScore`.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import SlidingWindowAttention
        >>> inputs = np.ones((1, 4, 8), "float32")
        >>> layer = SlidingWindowAttention(num_heads=2, key_dim=4, window=1)
        >>> _, weights = layer(inputs, inputs, return_attention_scores=True)
        >>> print(np.round(weights[0, 0], 2))
        [[0.5  0.5  0.   0.  ]
         [0.33 0.33 0.33 0.  ]
         [0.   0.33 0.33 0.33]
         [0.   0.   0.5  0.5 ]]

    Reference:
        Beltagy et al. 2020, "Longformer: The Long-Document Transformer", section 3.1, https://arxiv.org/abs/2004.05150
    """

    saved_options = ("window",)

    def __init__(self, num_heads, key_dim, window, value_dim=None, **kwargs):
        self.window = check_size("window", window)
        super().__init__(num_heads, key_dim, value_dim, **kwargs)

    @property
    def rule(self):
        return SlidingWindow(self.window)

    def blocks(self, length, start, causal):
        reach = self.window if causal else 2 * self.window  # keys in the window of a query besides its own
        rows = max(self.window, MIN_ROWS)
        rows = min(rows, length) if isinstance(length, int) else rows
        positions = ops.arange(rows, dtype="int32") + self.window
        return QueryBlocks(
            count=(length + rows - 1) // rows,
            rows=rows,
            window=rows + reach,
            first_key=start - self.window,
            row_positions=positions,
        )
