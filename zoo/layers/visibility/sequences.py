"""Visibility rules by the order or the parts of a sequence: causal, prefix, segments."""

import keras
from keras import ops

from zoo.layers.visibility.base import Both, Either, VisibilityRule


@keras.saving.register_keras_serializable(package="attention_zoo")
class Causal(VisibilityRule):
    """The query at position p attends to the keys `s ≤ p`, as with `use_causal_mask`.

    Example:
        >>> from zoo.layers import Causal, SelfAttention, SlidingWindow
        >>> SelfAttention(4, visibility=Causal() & SlidingWindow(128)).visibility
        (Causal() & SlidingWindow(left=128, right=128))

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.2.3, https://arxiv.org/abs/1706.03762
    """

    is_relative = True

    def allows(self, pairs):
        return pairs.key <= pairs.query

    def may_allow(self, blocks):
        return blocks.key.first <= blocks.query.last

    def allows_all(self, blocks):
        return blocks.key.last <= blocks.query.first


def under_causal_mask(rule):
    """Returns the combination of a rule and a causal mask.

    It allows later keys only where parts of the rule with `replaces_causal` do.
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


@keras.saving.register_keras_serializable(package="attention_zoo")
class PrefixLM(VisibilityRule):
    """The query at position p attends to the keys `s ≤ p` and to the whole prefix, `s < prefix_length`.

    Pass `prefix_length`, integers [B], to the call. The rule replaces `use_causal_mask` and the causal mask of caches;
    in `PrefixLM() | rule` these hide only later keys that the other rule alone allows. Pass a prefix to a cache in one
    call.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import MultiHeadAttention, PrefixLM
        >>> layer, inputs = MultiHeadAttention(2, 4, visibility=PrefixLM()), np.ones((1, 3, 8), "float32")
        >>> _, weights = layer(inputs, inputs, prefix_length=np.array([2]), return_attention_scores=True)
        >>> print(np.round(weights[0, 0], 2))
        [[0.5  0.5  0.  ]
         [0.5  0.5  0.  ]
         [0.33 0.33 0.33]]

    Reference:
        Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
        section 3.2.1, https://arxiv.org/abs/1910.10683; Liu et al. 2018, https://arxiv.org/abs/1801.10198
    """

    needs = ("prefix_length",)
    replaces_causal = True

    def allows(self, pairs):
        return ops.logical_or(pairs.key < pairs.inputs["prefix_length"], pairs.key <= pairs.query)

    def may_allow(self, blocks):
        in_prefix = blocks.key.first < blocks.inputs["prefix_length"].last
        return ops.logical_or(in_prefix, blocks.key.first <= blocks.query.last)

    def allows_all(self, blocks):
        in_prefix = blocks.key.last < blocks.inputs["prefix_length"].first
        return ops.logical_or(in_prefix, blocks.key.last <= blocks.query.first)


@keras.saving.register_keras_serializable(package="attention_zoo")
class Segments(VisibilityRule):
    """A query attends to the keys of its own segment, so that texts packed into one row stay separate.

    Pass `segment_ids`, integers [B, S], to the call: those of the keys, with a cache over its capacity, like masks.
    `query_segment_ids` [B, T] are by default those of the keys at the queries' positions. If ids are sorted, as packing
    makes them, blocks of other segments are skipped, and the cost is the sum of the squares of the lengths.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import Causal, MultiHeadAttention, Segments
        >>> layer = MultiHeadAttention(num_heads=2, key_dim=4, visibility=Causal() & Segments())
        >>> inputs = np.ones((1, 4, 8), "float32")
        >>> segment_ids = np.array([[1, 1, 2, 2]])
        >>> _, weights = layer(inputs, inputs, segment_ids=segment_ids, return_attention_scores=True)
        >>> print(np.round(weights[0, 0], 2))
        [[1.  0.  0.  0. ]
         [0.5 0.5 0.  0. ]
         [0.  0.  1.  0. ]
         [0.  0.  0.5 0.5]]

    Reference:
        Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination", section 3.2,
        https://arxiv.org/abs/2107.02027
    """

    needs = ("segment_ids", "query_segment_ids")

    def allows(self, pairs):
        return ops.equal(pairs.inputs["query_segment_ids"], pairs.inputs["segment_ids"])

    def may_allow(self, blocks):
        return blocks.inputs["query_segment_ids"].meets(blocks.inputs["segment_ids"])

    def allows_all(self, blocks):
        query, key = blocks.inputs["query_segment_ids"], blocks.inputs["segment_ids"]
        return ops.logical_and(ops.equal(query.first, key.last), ops.equal(query.last, key.first))
