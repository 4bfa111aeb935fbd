"""No look into the future."""

import keras

from zoo.layers.visibility.base import Both, Either, VisibilityRule


@keras.saving.register_keras_serializable(package="attention_zoo")
class Causal(VisibilityRule):
    """The query at position p sees the keys `s ≤ p`, as with `use_causal_mask`.

    Example:
        >>> from zoo.layers import Causal, SelfAttention, SlidingWindow
        >>> SelfAttention(4, visibility=Causal() & SlidingWindow(128)).visibility
        (Causal() & SlidingWindow(left=128, right=128))

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3, https://arxiv.org/abs/1706.03762
    """

    def sees(self, pairs):
        return pairs.key <= pairs.query

    def may_see(self, blocks):
        return blocks.key.first <= blocks.query.last

    def sees_all(self, blocks):
        return blocks.key.last <= blocks.query.first


def under_causal_mask(rule):
    """Returns the rule that holds where there is a causal mask besides.

    Of the future it lets see no more than what parts let see that `replaces_causal`.
    """
    if not rule.replaces_causal:
        return Causal() & rule
    if isinstance(rule, Either):
        return under_causal_mask(rule.first) | under_causal_mask(rule.second)
    if isinstance(rule, Both):
        first, second = (
            under_causal_mask(part) if part.replaces_causal else part for part in (rule.first, rule.second)
        )
        return first & second
    return rule
