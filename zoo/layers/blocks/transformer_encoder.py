"""Transformer encoder block."""

import keras

from zoo.layers.blocks.transformer_base import TransformerBlock
from zoo.layers.core.base import pack_results
from zoo.layers.core.normalization import make_normalization


@keras.saving.register_keras_serializable(package="attention_zoo")
class TransformerEncoderBlock(TransformerBlock):
    """Self-attention, then a feed-forward network, each inside a residual connection.

    With `use_causal_mask` or a cache it is the block of a decoder-only language model.

    Args:
        attention: An attention layer that follows the contract of `BaseAttention`.
        feed_forward: A layer [B, T, D] → [B, T, D], such as `FeedForward`.
        normalize_first: Pre-norm instead of post-norm.
        dropout: Rate of dropout on the output of each sublayer.
        epsilon: Constant of the normalisation.
        seed: Seed of the dropout.
        normalization: `"layer_norm"` or `"rms_norm"`, see `TransformerBlock`.
        parallel_residual: Whether both sublayers read the inputs of the block, `x + f(norm₁(x)) + g(norm₂(x))`.
            Requires `normalize_first`.
        sandwich_norm: Whether the output of each sublayer is normalised as well, `x + dropout(norm'(f(norm(x))))`, so
            that activations grow at most linearly with the depth. It doubles the weights of the normalisations.
            Requires `normalize_first`.
        res_post_norm: Whether only the output of each sublayer is normalised, `x + dropout(norm(f(x)))`, in place of
            post-norm.

    Call arguments:
        inputs: [B, T, D].
        mask: Boolean [B, T], True at real positions; with a cache [B, L], L its capacity, or in a growing cache the
            number of all positions with the new ones; with a rolling cache [B, T].
        attention_mask: Boolean [B, T, T] or [B, N, T, T]; with a cache the last axis is L.
        return_attention_scores: Whether to return the attention weights as well.
        training: Whether dropout is active.
        use_causal_mask: Whether a position attends only to itself and earlier positions.
        attention_bias: Float tensor that broadcasts to the scores, added before the softmax.
        cache: A cache from the attention's `create_cache`, for decoding step by step; attention is then causal.

    Returns:
        [B, T, D]; with `return_attention_scores` the weights; the new cache, if any, comes last.

    Raises:
        ValueError: If a sublayer is not a layer, `mask` does not cover the cache, `parallel_residual` or
            `sandwich_norm` is set without `normalize_first`, or `res_post_norm` with it.

    Example:
        >>> import numpy as np
        >>> from zoo.layers import FeedForward, MultiHeadAttention, TransformerEncoderBlock
        >>> block = TransformerEncoderBlock(MultiHeadAttention(num_heads=2, key_dim=4), FeedForward(16))
        >>> block(np.ones((2, 3, 8), "float32")).shape
        TensorShape([2, 3, 8])

    Reference:
        Vaswani et al. 2017, "Attention Is All You Need", section 3.1, https://arxiv.org/abs/1706.03762;
        Black et al. 2022, "GPT-NeoX-20B", section 2.1 (parallel), https://arxiv.org/abs/2204.06745;
        Ding et al. 2021, "CogView", section 2.4 (sandwich), https://arxiv.org/abs/2105.13290; Gemma Team 2024,
        "Gemma 2: Improving Open Language Models at a Practical Size", section 2, https://arxiv.org/abs/2408.00118;
        Liu et al. 2022, "Swin Transformer V2", section 3.2 (res-post-norm), https://arxiv.org/abs/2111.09883
    """

    saved_options = ("attention", "feed_forward", "parallel_residual", "sandwich_norm", "res_post_norm")

    def __init__(
        self,
        attention,
        feed_forward,
        normalize_first=False,
        dropout=0.0,
        epsilon=1e-5,
        seed=None,
        normalization="layer_norm",
        parallel_residual=False,
        sandwich_norm=False,
        res_post_norm=False,
        **kwargs,
    ):
        for name, option in (("parallel_residual", parallel_residual), ("sandwich_norm", sandwich_norm)):
            if option and not normalize_first:
                raise ValueError(f"`{name}` requires `normalize_first`. Received: {name}=True, normalize_first=False.")
        if res_post_norm and normalize_first:
            raise ValueError("`res_post_norm` requires `normalize_first=False`. Received: both are True.")
        sublayers = {"attention": attention, "feed_forward": feed_forward}
        super().__init__(sublayers, normalize_first, dropout, epsilon, seed, normalization, **kwargs)
        self.parallel_residual = parallel_residual
        self.sandwich_norm = sandwich_norm
        self.res_post_norm = res_post_norm
        self.output_norms = [
            make_normalization(normalization, epsilon=epsilon, dtype=self.dtype_policy, name=f"{name}_output_norm")
            for name in (sublayers if sandwich_norm else ())
        ]

    def build(self, inputs_shape):
        self.build_sublayer(self.attention, inputs_shape, inputs_shape)
        self.build_sublayer(self.feed_forward, inputs_shape)
        self.build_norms(inputs_shape)
        for norm in self.output_norms:
            norm.build(inputs_shape)

    def add_residual(self, index, inputs, outputs, training=None):
        if self.res_post_norm:
            return self.residual_sum(inputs, self.norms[index](outputs), training)
        outputs = self.output_norms[index](outputs) if self.sandwich_norm else outputs
        return super().add_residual(index, inputs, outputs, training)

    def call(
        self,
        inputs,
        mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        *,
        attention_bias=None,
        cache=None,
    ):
        hidden, scores, cache, _ = self.attend_within(
            self.attention,
            inputs,
            mask,
            cache,
            training,
            return_attention_scores=return_attention_scores,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            use_causal_mask=use_causal_mask,
        )
        source = inputs if self.parallel_residual else hidden
        output = self.add_residual(1, hidden, self.feed_forward(self.pre_norm(1, source), training=training), training)
        return pack_results(output, scores, cache)
