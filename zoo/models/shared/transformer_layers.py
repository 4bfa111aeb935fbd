"""From options to the layers of a Transformer, for the models of all tasks."""

import math

import keras

from zoo import layers
from zoo.errors import InputError
from zoo.layers.core.activations import get_activation
from zoo.layers.core.normalization import make_normalization
from zoo.models.shared.positions import InputPositions, TwoSidedALiBiPositions
from zoo.models.shared.scores import model_score
from zoo.models.shared.transformer_options import (
    CONVOLUTIONS,
    MAX_DISTANCES,
    ROTARY_POSITIONS,
    T5_POSITIONS,
    VARIANTS,
)

FIRST_TEMPERATURE = 0.1
BY_STATES = {
    "retention": layers.MultiScaleRetention,
    "gated_linear": layers.GatedLinearAttention,
    "delta_rule": layers.DeltaRuleAttention,
}


class TransformerLayers:
    """Makes the layers of a Transformer.

    Args:
        options: Its `TransformerOptions`.
        dtype: Dtype or policy of the layers.
        max_length: Rows of a table of learned positions; length for which rotary positions are scaled.
        kind: What stands in place of self-attention. Default: as the options say.
        num_layers: Number of blocks. Default: as the options say.
        visibility: What self-attention sees. Default: as the options say.

    Raises:
        InputError: For an unknown score (the close ones are named) or activation, when a layer with it is made.
    """

    def __init__(self, options, dtype, max_length, kind=None, num_layers=None, visibility=None):
        self.options = options
        self.dtype = dtype
        self.max_length = max_length
        self.kind = kind or options.self_attention
        self.num_layers = num_layers or options.num_layers
        self.visibility = visibility or options.visibility

    def input_positions(self, name="positions"):
        """Returns the layer that gives embeddings their positions."""
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
                parallel_residual=getattr(self.options, "parallel_residual", False),
                sandwich_norm=getattr(self.options, "sandwich_norm", False),
                res_post_norm=getattr(self.options, "res_post_norm", False),
                **self._block_arguments(f"{name}_{index}"),
            )
            for index, positions in enumerate(self.attention_positions(causal))
        ]

    def decoder_blocks(self, name="decoder_block"):
        """Returns the numbered blocks of a decoder, which attend to themselves and to a memory."""
        return [
            layers.TransformerDecoderBlock(
                self.self_attention("self_attention", positions, index, causal=True),
                self.full_attention("cross_attention"),
                **self._block_arguments(f"{name}_{index}"),
            )
            for index, positions in enumerate(self.attention_positions(causal=True))
        ]

    def final_norm(self, name):
        """Returns the normalisation after a stack of blocks, `None` for post-norm blocks, which end with their own."""
        if not self.options.normalize_first and not getattr(self.options, "res_post_norm", False):
            return None
        return make_normalization(self.options.normalization, epsilon=self.options.epsilon, dtype=self.dtype, name=name)

    def embedding_norm(self, name):
        """Returns the normalisation of embeddings with their positions, or `None`."""
        if not self.options.embedding_norm:
            return None
        return make_normalization("layer_norm", epsilon=self.options.epsilon, dtype=self.dtype, name=name)

    def attention_positions(self, causal):
        """Returns the positions of each self-attention of a stack, `num_layers` objects or `None`.

        The layers share the biases of T5 (Raffel et al. 2020, section 2.1) unless `share_positions` says that they do
        not, and nothing else.
        """
        if self.options.positions in T5_POSITIONS and self.options.share_positions:
            return [self._positions(causal)] * self.num_layers
        skipped = getattr(self.options, "no_positions_every", 0)
        return [
            None if skipped and (block + 1) % skipped == 0 else self._positions(causal, block)
            for block in range(self.num_layers)
        ]

    def _positions(self, causal, block=0):
        arguments = {"dtype": self.dtype, "name": "positions"}
        kind = self.options.positions
        distance = self.options.max_distance or MAX_DISTANCES.get(kind)
        if kind in ROTARY_POSITIONS:
            wavelength = self._is_windowed(block) and getattr(self.options, "window_wavelength", 0.0)
            scaling = None if wavelength else self.options.rope_parameters(self.max_length)
            arguments |= {"max_wavelength": wavelength or self.options.max_wavelength, "scaling": scaling}
            arguments["fraction"] = self.options.rotary_fraction
            # To both sides, xpos would favour what is after the query.
            return (layers.XPosPositions if kind == "xpos" and causal else layers.RotaryPositions)(**arguments)
        if kind == "alibi":
            first_slope = self.options.alibi_slope
            return layers.ALiBiPositions(**arguments) if causal else TwoSidedALiBiPositions(first_slope, **arguments)
        if kind == "relative":
            return layers.ShawRelativePositions(distance, initializer=self._relative_initializer(), **arguments)
        if kind in T5_POSITIONS:
            return layers.T5RelativePositions(max_distance=distance, bidirectional=not causal, **arguments)
        return None

    def _relative_initializer(self):
        stddev = self.options.relative_stddev
        return keras.initializers.RandomNormal(stddev=stddev) if stddev else "glorot_uniform"

    def _score(self):
        if self.options.score == "cosine":
            return layers.CosineScore(FIRST_TEMPERATURE, learn_temperature=True, dtype=self.dtype)
        return model_score(self.options.score, self.dtype)

    def _attention_arguments(self, name, positions):
        return {
            "num_heads": self.options.num_heads,
            "key_dim": self.options.head_dim,
            "value_dim": self.options.value_dim or None,
            "query_dim": self.options.query_dim or None,
            "output_projection": self.options.output_projection,
            "positions": positions,
            "qk_norm": self.options.qk_norm,
            "qk_norm_across_heads": getattr(self.options, "qk_norm_across_heads", False),
            "output_gate": self.options.output_gate,
            "use_bias": self.options.use_bias,
            "dtype": self.dtype,
            "name": name,
        }

    def _compared(self):
        return {
            "score": self._score(),
            "share_score": self.options.share_score,
            "logit_softcap": self.options.logit_softcap or None,
            "normalization": self.options.attention_normalization,
            "dropout": self.options.attention_dropout,
        }

    def _is_windowed(self, block):
        """Returns whether the `visibility` is that of a block, counted from 0, which else attends to everything."""
        every = getattr(self.options, "full_attention_every", 0)
        return self.visibility != "full" and not (every and (block + 1) % every == 0)

    def _rule(self, block, causal):
        """Returns the visibility rule of the self-attention of a block, or `None` for everything."""
        options = self.options
        if not self._is_windowed(block):
            return None
        window = layers.SlidingWindow(options.window, 0 if causal else None)
        if self.visibility == "window":
            return window
        if self.visibility == "dilated":
            return layers.Dilated(options.window, options.dilation)
        if self.visibility == "global":
            return window | layers.GlobalTokens(range(options.global_tokens))
        if self.visibility == "block_sparse":
            summaries = layers.SummaryTokens(options.block_size, options.summary_tokens)
            return layers.LocalBlocks(options.block_size) | summaries
        return layers.TopBlocks(options.block_size, options.num_blocks) if self.visibility == "top_blocks" else None

    def full_attention(self, name, positions=None, rule=None):
        """Returns attention of a sequence to another one, or with positions to itself, to all that the rule shows."""
        arguments = self._attention_arguments(name, positions) | self._compared() | {"visibility": rule}
        if not self.options.num_key_value_heads:
            return layers.MultiHeadAttention(**arguments)
        return layers.GroupedQueryAttention(num_key_value_heads=self.options.num_key_value_heads, **arguments)

    def _mixing(self, name, block, causal):
        """Returns what stands in place of self-attention without queries and keys, or `None`."""
        options, arguments = self.options, {"use_bias": self.options.use_bias, "dtype": self.dtype, "name": name}
        if self.kind in CONVOLUTIONS:
            kind = layers.DynamicConvolution if self.kind == "dynamic_conv" else layers.LightweightConvolution
            padding = "causal" if causal else "same"
            width, rate = options.kernel_width(block), options.attention_dropout
            return kind(options.num_heads, width, padding, dropout=rate, **arguments)
        if self.kind == "average":
            return layers.AverageAttention(options.intermediate_dim, **arguments)
        return layers.SSRU(**arguments) if self.kind == "ssru" else None

    def _variant(self, kind, arguments, block):
        """Returns attention of one of the `VARIANTS`; heads are as large as others, in both parts or without R."""
        if kind == "talking_heads":
            return layers.TalkingHeadsAttention(**arguments)
        size = self.options.head_dim
        arguments |= {"value_dim": arguments["value_dim"] or size}
        refused = ("query_dim", "share_score")
        if kind == "differential":
            part, first = max(size // 2, 1), 0.8 - 0.6 * math.exp(-0.3 * block)  # section 2.1 of the paper
            arguments |= {"key_dim": part, "initial_lambda": first}
            return layers.DifferentialAttention(**_without(arguments, refused))
        rope = max(size // 4 * 2, 2)
        latent = {"latent_dim": self.options.latent_dim or 4 * size, "rope_dim": rope, "key_dim": size + rope}
        return layers.MultiHeadLatentAttention(**_without(arguments | latent, (*refused, "score", "qk_norm")))

    def self_attention(self, name, positions=None, block=0, causal=False):
        """Returns the attention of a sequence to itself, with one of `attention_positions`.

        Args:
            name: Name of the layer.
            positions: One of `attention_positions`.
            block: Number of the block, from 0.
            causal: Whether no position sees a later one.
        """
        kind = self.kind
        mixing = self._mixing(name, block, causal)
        if mixing is not None:
            return mixing
        if kind == "full":
            return self.full_attention(name, positions, self._rule(block, causal))
        arguments = self._attention_arguments(name, positions)
        if kind == "linear":
            return layers.LinearAttention(**arguments)
        if kind == "performer":
            return layers.PerformerAttention(num_features=self.options.num_features, **arguments)
        if kind in VARIANTS:
            return self._variant(kind, arguments | self._compared() | {"visibility": self._rule(block, causal)}, block)
        if kind in BY_STATES:
            return BY_STATES[kind](**arguments)
        arguments |= self._compared()
        if kind == "local":
            return layers.SlidingWindowAttention(window=self.options.window, **arguments)
        return layers.BlockLocalAttention(block_size=self.options.window, **arguments)

    def _feed_forward(self):
        try:
            activation = get_activation(self.options.activation)
        except ValueError as error:
            raise InputError(
                "`activation` must be one that Keras knows, such as relu, gelu or silu, or gelu_tanh. "
                f"Received: activation={self.options.activation!r}."
            ) from error
        return (layers.GatedFeedForward if self.options.gated else layers.FeedForward)(
            self.options.intermediate_dim,
            activation,
            self.options.feed_forward_dropout,
            use_bias=self.options.use_bias,
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


def _without(arguments, names):
    return {name: argument for name, argument in arguments.items() if name not in names}


def run_encoder_blocks(blocks, hidden, norm, return_attention_scores=False, **arguments):
    """Returns what a stack of encoder blocks makes of activations [B, T, D], and the weights of each block.

    Args:
        blocks: From `TransformerLayers.encoder_blocks`.
        hidden: [B, T, D].
        norm: From `TransformerLayers.final_norm`.
        return_attention_scores: Whether the weights are wanted; if not, there are none in the list.
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
    """Returns an empty cache of a decoder's self-attention, which keeps no more than what it sees if that is bounded.

    Args:
        attention: The layer.
        batch_size: B.
        max_length: Room for positions, or `None` for a cache that grows.
    """
    reach = getattr(attention, "reach", None)
    if isinstance(max_length, int) and reach is not None and attention.kept_first + reach < max_length:
        return attention.create_cache(batch_size, rolling=True)
    return attention.create_cache(batch_size, max_length)
