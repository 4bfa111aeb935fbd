"""A window around each query."""

import keras
from keras import ops

from zoo.layers.visibility.base import VisibilityRule
from zoo.layers.visibility.checks import check_count


@keras.saving.register_keras_serializable(package="attention_zoo")
class SlidingWindow(VisibilityRule):
    """The query at position p sees the keys `p − left ≤ s ≤ p + right`, at the cost of the window where it pays.

    Args:
        left: How many earlier keys a query sees, an integer, 0 or more.
        right: How many later ones. Default: `left`.

    Raises:
        ValueError: For other values.

    Example:
        >>> from zoo.layers import MultiHeadAttention, SlidingWindow
        >>> MultiHeadAttention(num_heads=2, key_dim=4, visibility=SlidingWindow(3, 0)).visibility
        SlidingWindow(left=3, right=0)

    Reference:
        Beltagy et al. 2020, "Longformer: The Long-Document Transformer", section 3.1, https://arxiv.org/abs/2004.05150
    """

    def __init__(self, left, right=None):
        self.left = check_count("left", left)
        self.right = check_count("right", left if right is None else right)
        self.span = self.left + self.right + 1
        self.reach = self.left

    def get_config(self):
        return {"left": self.left, "right": self.right}

    def sees(self, pairs):
        return ops.logical_and(pairs.key >= pairs.query - self.left, pairs.key <= pairs.query + self.right)

    def may_see(self, blocks):
        reached = blocks.key.last >= blocks.query.first - self.left
        return ops.logical_and(reached, blocks.key.first <= blocks.query.last + self.right)

    def sees_all(self, blocks):
        reached = blocks.key.first >= blocks.query.last - self.left
        return ops.logical_and(reached, blocks.key.last <= blocks.query.first + self.right)
