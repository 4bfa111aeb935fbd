"""The layers of a Transformer, made from its options, for the models of all tasks."""

import math

import keras
from keras import ops

from zoo import layers
from zoo.errors import InputError
from zoo.layers.attention.cache import at_places, is_growing
from zoo.layers.core.feed_forward import get_activation
from zoo.layers.core.graphs import axis_size
from zoo.layers.core.normalization import make_normalization
from zoo.models.shared.attention_options import WITHOUT_HEADS
from zoo.models.shared.position_options import MAX_DISTANCES, ROTARY_POSITIONS, T5_POSITIONS
from zoo.models.shared.positions import InputPositions, TwoSidedALiBiPositions
from zoo.models.shared.scores import model_score

INITIAL_TEMPERATURE = 0.1


class TransformerLayers:
    """Makes the layers of a stack of Transformer blocks.

    Args:
        options: The `TransformerOptions`.
        dtype: Dtype or policy of the layers.
        max_length: Rows of a table of learned positions; length for which rotary positions are scaled.
        stack: The `Stack`, one of `options.stacks`. Default: the first one.

    Raises:
        InputError: For an unknown score (the message suggests similar names) or activation, when a layer with it is
            made.
    """

    def __init__(self, options, dtype, max_length, stack=None):
        self.options = options
        self.dtype = dtype
        self.max_length = max_length
        self.stack = stack or options.stacks[""]

    def input_positions(self, name="positions"):
        """Returns the layer that adds positions to embeddings."""
        options = self.options
        return InputPositions(
            options.positions,
            self.max_length,
            options.position_dim,
            options.concat_projection,
            dtype=self.dtype,
            name=name,
        )

    def encoder_blocks(self, causal=False, name="encoder_block"):
        """Returns the numbered blocks of an encoder, or of a language model, which is called with a causal mask."""
        return [
            layers.TransformerEncoderBlock(
                self.self_attention("attention", positions, index, causal),
                parallel_residual=self.stack.parallel_residual,
                sandwich_norm=self.stack.sandwich_norm,
                res_post_norm=self.stack.res_post_norm,
                **self._block_arguments(f"{name}_{index}"),
            )
            for index, positions in enumerate(self.attention_positions(causal))
        ]

    def decoder_blocks(self, name="decoder_block"):
        """Returns the numbered blocks of a decoder, with self-attention and cross-attention."""
        return [
            layers.TransformerDecoderBlock(
                self.self_attention("self_attention", positions, index, causal=True),
                self.full_attention("cross_attention"),
                **self._block_arguments(f"{name}_{index}"),
            )
            for index, positions in enumerate(self.attention_positions(causal=True))
        ]

    def norm(self, name, kind=None):
        """Returns a normalisation of this kind. Default: that of the blocks."""
        kind = kind or self.options.normalization
        return make_normalization(kind, epsilon=self.options.epsilon, dtype=self.dtype, name=name)

    def final_norm(self, name):
        """Returns the normalisation after a stack of blocks, `None` for post-norm blocks, which end with their own."""
        return self.norm(name) if self.options.normalize_first or self.stack.res_post_norm else None

    def attention_positions(self, causal):
        """Returns the positions of each self-attention of the stack, `num_layers` objects or `None`.

        Only the biases of T5 (Raffel et al. 2020, section 2.1) are shared by the layers, if `share_positions` is true.
        """
        if self.options.positions in T5_POSITIONS and self.options.share_positions:
            return [self._positions(causal)] * self.stack.num_layers
        skipped = self.stack.no_positions_every
        return [
            None if skipped and (block + 1) % skipped == 0 else self._positions(causal, block)
            for block in range(self.stack.num_layers)
        ]

    def _positions(self, causal, block=0):
        options, kind = self.options, self.options.positions
        arguments = {"dtype": self.dtype, "name": "positions"}
        distance = options.max_distance or MAX_DISTANCES.get(kind)
        if kind in ROTARY_POSITIONS:
            wavelength = self.stack.window_wavelength if self._has_visibility(block) else 0.0
            scaling = None if wavelength else options.rope_parameters(self.max_length)
            arguments |= {"max_wavelength": wavelength or options.max_wavelength, "scaling": scaling}
            arguments["fraction"] = options.rotary_fraction
            # The decay of xpos is one-sided: in an encoder, it would favour the keys after the query.
            return (layers.XPosPositions if kind == "xpos" and causal else layers.RotaryPositions)(**arguments)
        if kind == "alibi" and causal:
            return layers.ALiBiPositions(**arguments)
        if kind == "alibi":
            return TwoSidedALiBiPositions(options.alibi_slope, **arguments)
        if kind == "relative":
            stddev = options.relative_stddev
            initializer = keras.initializers.RandomNormal(stddev=stddev) if stddev else "glorot_uniform"
            return layers.ShawRelativePositions(distance, initializer=initializer, **arguments)
        if kind in T5_POSITIONS:
            return layers.T5RelativePositions(max_distance=distance, bidirectional=not causal, **arguments)
        return None

    def _score(self):
        if self.options.score == "cosine":
            return layers.CosineScore(INITIAL_TEMPERATURE, learn_temperature=True, dtype=self.dtype)
        return model_score(self.options.score, self.dtype)

    def _head_arguments(self, name, positions):
        """Returns the arguments that all attention layers with heads of queries and keys share."""
        return {
            "num_heads": self.options.num_heads,
            "key_dim": self.options.head_dim,
            "value_dim": self.options.value_dim or None,
            "query_dim": self.options.query_dim or None,
            "output_projection": self.options.output_projection,
            "positions": positions,
            "qk_norm": self.options.qk_norm,
            "qk_norm_across_heads": self.stack.qk_norm_across_heads,
            "output_gate": self.options.output_gate,
            "use_bias": self.options.use_bias,
            "dtype": self.dtype,
            "name": name,
        }

    def _score_arguments(self):
        """Returns the further arguments of attention with scores."""
        return {
            "score": self._score(),
            "share_score": self.options.share_score,
            "logit_softcap": self.options.logit_softcap or None,
            "normalization": self.options.attention_normalization,
            "dropout": self.options.attention_dropout,
        }

    def _has_visibility(self, block):
        """Returns whether the `visibility` restricts a block, counted from 0."""
        every = self.stack.full_attention_every
        return self.stack.visibility != "full" and not (every and (block + 1) % every == 0)

    def _visibility_rule(self, block, causal):
        """Returns the rule for the mask of a block's self-attention, or `None` without one."""
        options, visibility = self.options, self.stack.visibility
        if not self._has_visibility(block):
            return None
        if visibility == "dilated":
            return layers.Dilated(options.window, options.dilation)
        if visibility == "block_sparse":
            summaries = layers.SummaryTokens(options.block_size, options.summary_tokens)
            return layers.LocalBlocks(options.block_size) | summaries
        if visibility == "top_blocks":
            return layers.TopBlocks(options.block_size, options.num_blocks)
        window = layers.SlidingWindow(options.window, 0 if causal else None)
        return window if visibility == "window" else window | layers.GlobalTokens(range(options.global_tokens))

    def full_attention(self, name, positions=None, rule=None):
        """Returns cross-attention, or with positions full self-attention, with a rule for its mask."""
        arguments = self._head_arguments(name, positions) | self._score_arguments() | {"visibility": rule}
        if not self.options.num_key_value_heads:
            return layers.MultiHeadAttention(**arguments)
        return layers.GroupedQueryAttention(num_key_value_heads=self.options.num_key_value_heads, **arguments)

    def self_attention(self, name, positions=None, block=0, causal=False):
        """Returns the self-attention of a block, or the layer in its place.

        Args:
            name: Name of the layer.
            positions: One of `attention_positions`.
            block: Number of the block, from 0.
            causal: Whether the layer is called with a causal mask.
        """
        options, kind = self.options, self.stack.self_attention
        if kind == "full":
            return self.full_attention(name, positions, self._visibility_rule(block, causal))
        if kind in WITHOUT_HEADS:
            return self._without_heads(name, block, causal)
        heads = self._head_arguments(name, positions)
        if kind == "linear":
            return layers.LinearAttention(**heads)
        if kind == "performer":
            return layers.PerformerAttention(num_features=options.num_features, **heads)
        if kind == "retention":
            return layers.MultiScaleRetention(**heads)
        if kind == "gated_linear":
            return layers.GatedLinearAttention(**heads)
        if kind == "delta_rule":
            return layers.DeltaRuleAttention(**heads)
        arguments = heads | self._score_arguments()
        if kind == "local":
            return layers.SlidingWindowAttention(window=options.window, **arguments)
        if kind == "block_local":
            return layers.BlockLocalAttention(block_size=options.window, **arguments)
        arguments["visibility"] = self._visibility_rule(block, causal)
        if kind == "talking_heads":
            return layers.TalkingHeadsAttention(**arguments)
        return self._differential(arguments, block) if kind == "differential" else self._latent(arguments)

    def _without_heads(self, name, block, causal):
        """Returns the layer in place of self-attention for a kind without heads of queries and keys."""
        options, kind = self.options, self.stack.self_attention
        arguments = {"use_bias": options.use_bias, "dtype": self.dtype, "name": name}
        if kind == "average":
            return layers.AverageAttention(options.intermediate_dim, **arguments)
        if kind == "ssru":
            return layers.SSRU(**arguments)
        make = layers.DynamicConvolution if kind == "dynamic_conv" else layers.LightweightConvolution
        width, padding = options.kernel_width(block), "causal" if causal else "same"
        return make(options.num_heads, width, padding, dropout=options.attention_dropout, **arguments)

    def _differential(self, arguments, block):
        """Returns differential attention; the two parts of a head together have the size of another head."""
        size = self.options.head_dim
        sizes = {"key_dim": max(size // 2, 1), "value_dim": arguments["value_dim"] or size}
        initial_lambda = 0.8 - 0.6 * math.exp(-0.3 * block)  # section 2.1 of the paper
        arguments = _without(arguments | sizes, "query_dim", "share_score")
        return layers.DifferentialAttention(initial_lambda=initial_lambda, **arguments)

    def _latent(self, arguments):
        """Returns latent attention; without their rotated part R, its heads have the size of other heads."""
        size = self.options.head_dim
        rope_dim = max(size // 4 * 2, 2)
        sizes = {"key_dim": size + rope_dim, "value_dim": arguments["value_dim"] or size}
        arguments = _without(arguments | sizes, "query_dim", "share_score", "score", "qk_norm")
        latent_dim = self.options.latent_dim or 4 * size
        return layers.MultiHeadLatentAttention(latent_dim=latent_dim, rope_dim=rope_dim, **arguments)

    def _feed_forward(self):
        options = self.options
        try:
            activation = get_activation(options.activation)
        except ValueError as error:
            raise InputError(
                "`activation` must be a name of Keras, such as relu, gelu or silu, or gelu_tanh. "
                f"Received: activation={options.activation!r}."
            ) from error
        return (layers.GatedFeedForward if options.gated else layers.FeedForward)(
            options.intermediate_dim,
            activation,
            options.feed_forward_dropout,
            use_bias=options.use_bias,
            dtype=self.dtype,
            name="feed_forward",
        )

    def _block_arguments(self, name):
        return {
            "feed_forward": self._feed_forward(),
            "normalize_first": self.options.normalize_first,
            "dropout": self.options.dropout,
            "epsilon": self.options.epsilon,
            "normalization": self.options.normalization,
            "dtype": self.dtype,
            "name": name,
        }


def _without(arguments, *names):
    return {name: argument for name, argument in arguments.items() if name not in names}


def run_encoder_blocks(blocks, hidden, norm, return_attention_scores=False, **arguments):
    """Returns the output of a stack of encoder blocks [B, T, D], and the attention weights of each block.

    Args:
        blocks: Result of `TransformerLayers.encoder_blocks`.
        hidden: [B, T, D].
        norm: Result of `TransformerLayers.final_norm`.
        return_attention_scores: Whether to return the weights; otherwise their list is empty.
        **arguments: Other arguments of each block's call.
    """
    weights = []
    for block in blocks:
        hidden = block(hidden, return_attention_scores=return_attention_scores, **arguments)
        if return_attention_scores:
            hidden, scores = hidden
            weights.append(scores)
    return hidden if norm is None else norm(hidden), weights


def decoding_cache(attention, batch_size, max_length):
    """Returns an empty cache for the self-attention of a decoder, which for a window contains only its positions.

    Args:
        attention: The layer.
        batch_size: B.
        max_length: Capacity in positions, or `None` for a cache that grows.
    """
    reach = attention.reach if isinstance(attention, layers.BaseAttention) else None
    if isinstance(max_length, int) and reach is not None and attention.kept_first + reach < max_length:
        return attention.create_cache(batch_size, rolling=True)
    return attention.create_cache(batch_size, max_length)


def can_rewind(attention):
    """Returns whether `rewind` supports the cache of a decoder's self-attention: keys and values of all positions."""
    return isinstance(attention, layers.BaseAttention) and (
        type(attention).create_cache is layers.BaseAttention.create_cache
    )


def rewinds_by_row(attention):
    """Returns whether `rewind` supports different counts for the rows of the cache of a decoder's self-attention."""
    if not can_rewind(attention) or attention.needs_all_keys:
        return False
    return attention.effective_rule is None or attention.effective_rule.is_relative


def rewind(state, counts):
    """Returns the decoding state without the last tokens of each row, `counts` int32, [B] or a scalar.

    The caches of all rows are aligned at the end. Counts are limited to the number of tokens of a row.

    Raises:
        ValueError: If the caches do not grow.
    """
    caches = state["caches"]
    if not all(is_growing(cache) for cache in caches):
        raise ValueError("`rewind` requires a state from `initial_state` without `max_length`, whose caches grow.")
    counts = ops.maximum(ops.minimum(ops.convert_to_tensor(counts, dtype="int32"), state["index"]), 0)
    counts = ops.broadcast_to(counts, (axis_size(caches[0]["key"], 0),))
    index = state["index"] - counts

    def moved():
        length, longest = axis_size(caches[0]["key"], -2), ops.max(index, initial=0)
        places = ops.arange(longest, dtype="int32") + (length - longest - counts)[:, None]
        return [at_places(cache, ops.maximum(places, 0)) for cache in caches]

    if keras.backend.backend() == "jax":  # whose branches must have the same shapes
        return {"index": index, "caches": moved()}
    return {"index": index, "caches": ops.cond(ops.any(counts > 0), moved, lambda: caches)}


def caches_for(state, num_tokens):
    """Returns the caches of a decoding state, for a call that appends as many tokens."""
    index, caches = state["index"], state["caches"]
    if not len(index.shape):
        return caches
    length = axis_size(caches[0]["key"], -2)
    filled = ops.arange(length + num_tokens, dtype="int32") >= (length - index)[:, None]
    return [{**cache, "lengths": index, "filled": filled} for cache in caches]
