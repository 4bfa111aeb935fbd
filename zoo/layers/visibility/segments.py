"""Several texts in one row."""

import keras
from keras import ops

from zoo.layers.visibility.base import VisibilityRule


@keras.saving.register_keras_serializable(package="attention_zoo")
class Segments(VisibilityRule):
    """A query sees the keys of its own segment: texts that are packed into one row do not see each other.

    The call tells the segments: `segment_ids`, integers [B, S], of the keys, with a cache over its room as masks are,
    and `query_segment_ids` [B, T] of the queries, by default those of the keys at their positions. Ids that are the
    same in a block and sorted, as packing makes them, let the other blocks be skipped: the cost is then the sum of the
    squares of the lengths.

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

    def sees(self, pairs):
        return ops.equal(pairs.inputs["query_segment_ids"], pairs.inputs["segment_ids"])

    def may_see(self, blocks):
        return blocks.inputs["query_segment_ids"].meets(blocks.inputs["segment_ids"])

    def sees_all(self, blocks):
        query, key = blocks.inputs["query_segment_ids"], blocks.inputs["segment_ids"]
        return ops.logical_and(ops.equal(query.first, key.last), ops.equal(query.last, key.first))
