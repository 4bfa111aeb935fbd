"""A prefix that is read as a whole."""

import keras
from keras import ops

from zoo.layers.visibility.base import VisibilityRule


@keras.saving.register_keras_serializable(package="attention_zoo")
class PrefixLM(VisibilityRule):
    """A query at position p sees the keys `s ≤ p`, and all of the prefix: `s < prefix_length`, which the call tells.

    `prefix_length` is an integer [B]. The rule takes the place of `use_causal_mask` and of the causal mask of caches:
    these hide nothing more; in `PrefixLM() | rule`, what only the other rule lets see of the future. A prefix enters a
    cache in one call.

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

    def sees(self, pairs):
        return ops.logical_or(pairs.key < pairs.inputs["prefix_length"], pairs.key <= pairs.query)

    def may_see(self, blocks):
        in_prefix = blocks.key.first < blocks.inputs["prefix_length"].last
        return ops.logical_or(in_prefix, blocks.key.first <= blocks.query.last)

    def sees_all(self, blocks):
        in_prefix = blocks.key.last < blocks.inputs["prefix_length"].first
        return ops.logical_or(in_prefix, blocks.key.last <= blocks.query.first)
