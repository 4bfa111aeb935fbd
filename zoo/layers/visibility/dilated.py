"""A window with gaps."""

import keras
from keras import ops

from zoo.layers.visibility.base import VisibilityRule
from zoo.layers.visibility.checks import check_count


@keras.saving.register_keras_serializable(package="attention_zoo")
class Dilated(VisibilityRule):
    """The query at position p sees the keys `p + i · dilation` for `|i| ≤ window`.

    Args:
        window: How many keys a query sees on either side, an integer, 0 or more.
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

    def __init__(self, window, dilation):
        self.window, self.dilation = check_count("window", window), check_count("dilation", dilation, least=1)
        self.reach = self.window * self.dilation

    def get_config(self):
        return {"window": self.window, "dilation": self.dilation}

    def sees(self, pairs):
        steps = ops.abs(pairs.query - pairs.key)
        return ops.logical_and(steps <= self.reach, ops.equal(steps % self.dilation, 0))

    def may_see(self, blocks):
        reached = blocks.key.last >= blocks.query.first - self.reach
        return ops.logical_and(reached, blocks.key.first <= blocks.query.last + self.reach)
