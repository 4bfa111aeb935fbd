"""Pooling by attention: learned queries summarise a sequence."""

import keras
from keras import ops

from zoo.layers.core.base import ReturnsMore, SavesOptions
from zoo.layers.core.checks import check_size


@keras.saving.register_keras_serializable(package="attention_zoo")
class AttentionPooling(ReturnsMore, SavesOptions):
    """Weighted means of a sequence, by learned queries: `attention(query = Q, value = inputs)`.

    With `AdditiveAttention` and one query this is the pooling of hierarchical attention networks; with
    `MultiHeadAttention` and several queries it is that of the Set Transformer.

    Args:
        attention: An attention layer that follows the contract of `BaseAttention`.
        num_queries: Number of learned queries, Q; `None` for one query without an axis in the output.
        query_dim: Size of the learned queries. Default: the last axis of the inputs.

    Call arguments:
        inputs: [B, S, D].
        mask: Boolean [B, S], True at real positions.
        return_attention_scores: Whether to return the attention weights as well.
        training: Whether dropout is active.

    Returns:
        [B, D'] or, with `num_queries`, [B, Q, D'], where D' is the last axis of the attention's output; with
        `return_attention_scores` also the weights, [B, N, Q, S] or [B, Q, S]. For a sequence without real positions the
        output is zero.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import AdditiveAttention, AttentionPooling
        >>> AttentionPooling(AdditiveAttention(units=7))(np.ones((2, 3, 5), "float32")).shape
        TensorShape([2, 5])

    Reference:
        Yang et al. 2016, "Hierarchical Attention Networks for Document Classification", section 2.2,
        https://aclanthology.org/N16-1174; Lee et al. 2019, "Set Transformer", section 3.2,
        https://arxiv.org/abs/1810.00825
    """

    saved_options = ("attention", "num_queries", "query_dim")

    def __init__(self, attention, num_queries=None, query_dim=None, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.attention = attention
        self.num_queries = check_size("num_queries", num_queries, optional=True)
        self.query_dim = check_size("query_dim", query_dim, optional=True)

    def build(self, inputs_shape):
        size = self.query_dim or inputs_shape[-1]
        self.queries = self.add_weight(
            name="queries", shape=(self.num_queries or 1, size), initializer=keras.initializers.GlorotUniform()
        )
        if not self.attention.built:  # a reloaded layer is built already
            self.attention.build((inputs_shape[0], self.num_queries or 1, size), inputs_shape)

    def compute_mask(self, inputs, mask=None):
        """Returns no mask: the output has no padding."""
        return None

    def call(self, inputs, mask=None, return_attention_scores=False, training=None):
        batch = ops.shape(inputs)[0]
        queries = ops.broadcast_to(ops.expand_dims(self.queries, 0), (batch, *self.queries.shape))
        output, weights = self.attention(
            ops.cast(queries, self.compute_dtype),
            inputs,
            value_mask=mask,
            return_attention_scores=True,
            training=training,
        )
        output = ops.squeeze(output, 1) if self.num_queries is None else output
        return (output, weights) if return_attention_scores else output

    def compute_output_shape(self, inputs_shape):
        size = self.query_dim or inputs_shape[-1]
        shape = self.attention.compute_output_shape((inputs_shape[0], self.num_queries or 1, size), inputs_shape)
        return (shape[0], shape[2]) if self.num_queries is None else tuple(shape)
