"""Transformer decoder block."""

import keras
from keras import ops

from zoo.layers.attention import cache as caches
from zoo.layers.blocks.transformer_base import TransformerBlock
from zoo.layers.core.base import pack_results
from zoo.layers.core.lazy import value_of
from zoo.layers.core.masks import single_mask


@keras.saving.register_keras_serializable(package="attention_zoo")
class TransformerDecoderBlock(TransformerBlock):
    """Causal self-attention, cross-attention to a memory, then a feed-forward network, each in a residual connection.

    Args:
        self_attention: An attention layer that follows the contract of `BaseAttention`.
        cross_attention: An attention layer, whose values are the memory.
        feed_forward: A layer [B, T, D] → [B, T, D], such as `FeedForward`.
        normalize_first: Pre-norm instead of post-norm.
        dropout: Rate of dropout on the output of each sublayer.
        epsilon: Constant of the normalisation.
        seed: Seed of the dropout.
        normalization: `"layer_norm"` or `"rms_norm"`, see `TransformerBlock`.

    Call arguments:
        inputs: [B, T, D].
        memory: [B, S, M], the encoder's output; or the result of `project_memory`.
        mask: Boolean [B, T], True at real positions; default: `inputs_mask`. With a cache [B, L], L its capacity, or in
            a growing cache the number of all positions with the new ones; with a rolling cache [B, T].
        memory_mask: Boolean [B, S].
        return_attention_scores: Whether to return the weights of the cross-attention as well.
        training: Whether dropout is active.
        cache: The cache of self-attention, for decoding step by step.
        sharing: Number of adjacent rows of `inputs`, with one position each, that share a row of the memory, such as
            the beams of a search.
        attention_mask: Mask of self-attention, boolean [B, T, T] or [B, N, T, T]; with a cache the last axis is L.
        attention_bias: Bias of self-attention, a float tensor that broadcasts to the scores, added before the softmax.
        return_self_attention_scores: Whether to return the weights of self-attention as well.
        inputs_mask: Boolean [B, T], passed by Keras: the Keras mask of `inputs`, such as that of an
            `Embedding(mask_zero=True)`. Not used with `mask` or a cache.

    Returns:
        [B, T, D]; if requested the weights of cross-attention [B, N, T, S] and of self-attention [B, N, T, T] (with a
        cache [B, N, T, L]); the new cache, if any, comes last.

    Raises:
        ValueError: If a sublayer is not a layer, `mask` does not cover the cache, or rows share a memory whose
            attention depends on the positions of queries.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import FeedForward, MultiHeadAttention, TransformerDecoderBlock
        >>> block = TransformerDecoderBlock(MultiHeadAttention(2, 4), MultiHeadAttention(2, 4), FeedForward(16))
        >>> block(np.ones((2, 3, 8), "float32"), np.ones((2, 5, 8), "float32")).shape
        TensorShape([2, 3, 8])

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1, https://arxiv.org/abs/1706.03762
    """

    saved_options = ("self_attention", "cross_attention", "feed_forward")

    def __init__(
        self,
        self_attention,
        cross_attention,
        feed_forward,
        normalize_first=False,
        dropout=0.0,
        epsilon=1e-5,
        seed=None,
        normalization="layer_norm",
        **kwargs,
    ):
        sublayers = {"self_attention": self_attention, "cross_attention": cross_attention, "feed_forward": feed_forward}
        super().__init__(sublayers, normalize_first, dropout, epsilon, seed, normalization, **kwargs)

    def build(self, inputs_shape, memory_shape):
        self.build_sublayer(self.self_attention, inputs_shape, inputs_shape)
        self.build_sublayer(self.cross_attention, inputs_shape, memory_shape)
        self.build_sublayer(self.feed_forward, inputs_shape)
        self.build_norms(inputs_shape)

    def project_memory(self, memory):
        """Returns the keys and values of cross-attention, to be passed as `memory` at every step."""
        return self.cross_attention.project_memory(memory)

    def call(
        self,
        inputs,
        memory,
        mask=None,
        memory_mask=None,
        return_attention_scores=False,
        training=None,
        cache=None,
        sharing=1,
        *,
        attention_mask=None,
        attention_bias=None,
        return_self_attention_scores=False,
        inputs_mask=None,
    ):
        mask = inputs_mask if mask is None and cache is None else mask
        source = {"memory": memory} if isinstance(memory, dict) else {"value": memory}
        if self.cross_attention.needs_query_position:
            if sharing != 1:
                raise ValueError(
                    "Rows cannot share a memory whose attention depends on the positions of queries. "
                    f"Received: sharing={sharing}."
                )
            source["start_index"] = 0 if cache is None else value_of(caches.next_position(cache))
        hidden, self_scores, cache, query_mask = self.attend_within(
            self.self_attention,
            inputs,
            mask,
            cache,
            training,
            return_attention_scores=return_self_attention_scores,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            use_causal_mask=True,
        )
        attended, scores, _ = self.attend(
            self.cross_attention,
            _join_rows(self.pre_norm(1, hidden), sharing),
            return_attention_scores,
            query_mask=_join_masks(query_mask, sharing),
            value_mask=single_mask(memory_mask),
            training=training,
            **source,
        )
        attended, scores = _split_rows(attended, scores, sharing)
        hidden = self.add_residual(1, hidden, attended, training)
        output = self.add_residual(2, hidden, self.feed_forward(self.pre_norm(2, hidden), training=training), training)
        return pack_results(output, scores, self_scores, cache)


def _join_rows(rows, sharing):
    """Returns rows that share a memory as positions of one row, [B, K, D] from [B · K, 1, D]."""
    return rows if sharing == 1 else ops.reshape(rows, (-1, sharing, rows.shape[-1]))


def _join_masks(mask, sharing):
    """Returns the mask of joined rows, [B, K] from [B · K, 1], or `None`."""
    return mask if mask is None or sharing == 1 else ops.reshape(mask, (-1, sharing))


def _split_rows(rows, weights, sharing):
    """Returns the inverse of `_join_rows`, [B · K, 1, D] from [B, K, D], and of the attention weights, if any."""
    if sharing == 1:
        return rows, weights
    rows = ops.reshape(rows, (-1, 1, rows.shape[-1]))
    if weights is None:
        return rows, None
    batch, heads, _, keys = ops.shape(weights)
    weights = ops.reshape(ops.swapaxes(weights, 1, 2), (batch * sharing, heads, 1, keys))
    return rows, weights
