"""From options to the parts of a Transformer, for the models of all tasks.

A model makes `InputPositions` for its embeddings, `encoder_blocks` or `decoder_blocks`, and a `final_norm` after them.
"""

import keras
from keras import ops

from zoo import layers
from zoo.errors import InputError
from zoo.layers.blocks.normalization import NORMALIZATIONS
from zoo.layers.positions.base import distances
from zoo.models.shared.scores import model_score
from zoo.models.shared.transformer_options import INPUT_POSITIONS, MAX_DISTANCES, TransformerOptions

FIRST_TEMPERATURE = 0.1


@keras.saving.register_keras_serializable(package="attention_zoo")
class EndlessPositions(layers.LearnedPositions):
    """Learned positions that give all behind the last row of their table that row, however long the inputs are.

    The table of a model may be shorter than a text. A served graph, which knows no lengths, clamps as well; so the
    model does the same everywhere.
    """

    def encode(self, inputs, start_index=0):
        return super(layers.LearnedPositions, self).encode(inputs, start_index)


@keras.saving.register_keras_serializable(package="attention_zoo")
class InputPositions(keras.layers.Layer):
    """What embeddings gain from their positions: `x + p`, or `W [x; p] + b`, or nothing.

    Args:
        kind: One of `zoo.models.shared.transformer_options.POSITIONS`; those of self-attention change nothing here.
        max_length: Rows of a learned table; positions behind the last row take that row.

    Call arguments:
        inputs: Embeddings [B, T, D].
        start_index: Position of the first row, an integer or a scalar tensor.

    Returns:
        [B, T, D].
    """

    def __init__(self, kind, max_length, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.kind = kind
        self.max_length = max_length
        self.positions = self._positions()
        self.output_dense = None

    def _positions(self):
        options = {"concatenate": self.kind.endswith("concat"), "dtype": self.dtype_policy, "name": "positions"}
        if self.kind not in INPUT_POSITIONS:
            return None
        if self.kind in ("sinusoidal", "concat"):
            return layers.SinusoidalPositions(**options)
        return EndlessPositions(self.max_length, initializer=keras.initializers.RandomNormal(stddev=0.1), **options)

    def build(self, input_shape):
        if self.positions is None:
            return
        self.positions.build(input_shape)
        if self.positions.concatenate:
            self.output_dense = keras.layers.Dense(input_shape[-1], dtype=self.dtype_policy, name="output")
            self.output_dense.build((*input_shape[:-1], self.positions.encoded_size(input_shape[-1])))

    def call(self, inputs, start_index=0):
        if self.positions is None:
            return inputs
        encoded = self.positions(inputs, start_index=start_index)
        return encoded if self.output_dense is None else self.output_dense(encoded)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "kind": self.kind, "max_length": self.max_length}


@keras.saving.register_keras_serializable(package="attention_zoo")
class TwoSidedALiBiPositions(layers.ALiBiPositions):
    """ALiBi for attention to both sides, which tells them apart: `−m · |i − j|`, and on one side twice that.

    It is the side behind the query in every other head, beginning with the first, and in front of it in the rest. With
    equal biases on both sides an encoder makes of a reversed text the same vectors, in reversed order, and a decoder
    without positions of its own in the cross-attention cannot know which of the two it reads. (The paper has decoders
    alone.)
    """

    def bias(self, query_positions, key_positions):
        behind = distances(query_positions, key_positions) > 0  # [T, S]
        even = ops.arange(len(self.slopes)) % 2 == 0
        doubled = ops.equal(behind, even[:, None, None])
        bias = super().bias(query_positions, key_positions)
        return ops.where(doubled, 2.0 * bias, bias)


def attention_positions(options: TransformerOptions, causal, dtype):
    """Returns the positions of each self-attention of a stack, `num_layers` objects or `None`.

    The layers share the biases of T5 (Raffel et al. 2020, section 2.1), and nothing else.

    Args:
        options: The options.
        causal: Whether the stack sees only what stands before.
        dtype: Dtype or policy.
    """
    if options.positions == "t5":
        return [_positions_of_one(options, causal, dtype)] * options.num_layers
    return [_positions_of_one(options, causal, dtype) for _ in range(options.num_layers)]


def _positions_of_one(options, causal, dtype):
    arguments = {"dtype": dtype, "name": "positions"}
    distance = options.max_distance or MAX_DISTANCES.get(options.positions)
    if options.positions == "rotary":
        return layers.RotaryPositions(**arguments)
    if options.positions == "alibi":
        return layers.ALiBiPositions(**arguments) if causal else TwoSidedALiBiPositions(**arguments)
    if options.positions == "relative":
        return layers.ShawRelativePositions(distance, **arguments)
    if options.positions == "t5":
        return layers.T5RelativePositions(max_distance=distance, bidirectional=not causal, **arguments)
    return None


def make_score(options: TransformerOptions, dtype):
    """Returns the score of one attention layer.

    Args:
        options: The options.
        dtype: Dtype or policy.

    Raises:
        InputError: For an unknown name; the close ones are named.
    """
    if options.score == "cosine":
        return layers.CosineScore(FIRST_TEMPERATURE, learn_temperature=True, dtype=dtype)
    return model_score(options.score, dtype)


def full_attention(options: TransformerOptions, name, dtype, positions=None):
    """Returns attention to everything: of a sequence to another one, or with positions to itself.

    Args:
        options: The options.
        name: The layer's name.
        dtype: Dtype or policy.
        positions: A `zoo.layers.Positions`, or `None`.
    """
    arguments = {
        "num_heads": options.num_heads,
        "key_dim": options.head_dim,
        "score": make_score(options, dtype),
        "positions": positions,
        "use_bias": options.use_bias,
        "dropout": options.attention_dropout,
        "dtype": dtype,
        "name": name,
    }
    if not options.num_key_value_heads:
        return layers.MultiHeadAttention(**arguments)
    return layers.GroupedQueryAttention(num_key_value_heads=options.num_key_value_heads, **arguments)


def self_attention(options: TransformerOptions, name, dtype, positions=None):
    """Returns the attention of a sequence to itself.

    Args:
        options: The options.
        name: The layer's name.
        dtype: Dtype or policy.
        positions: One of `attention_positions`.
    """
    if options.self_attention == "full":
        return full_attention(options, name, dtype, positions)
    arguments = {
        "num_heads": options.num_heads,
        "key_dim": options.head_dim,
        "positions": positions,
        "use_bias": options.use_bias,
        "dtype": dtype,
        "name": name,
    }
    if options.self_attention == "linear":
        return layers.LinearAttention(**arguments)
    if options.self_attention == "performer":
        return layers.PerformerAttention(num_features=options.num_features, **arguments)
    arguments |= {"score": make_score(options, dtype), "dropout": options.attention_dropout}
    if options.self_attention == "local":
        return layers.SlidingWindowAttention(window=options.window, **arguments)
    return layers.BlockLocalAttention(block_size=options.window, **arguments)


def feed_forward(options: TransformerOptions, dtype):
    """Returns the feed-forward network of one block.

    Args:
        options: The options.
        dtype: Dtype or policy.

    Raises:
        InputError: For an activation that Keras does not know.
    """
    try:
        activation = keras.activations.get(options.activation)
    except ValueError as error:
        raise InputError(
            "`activation` must be one that Keras knows, such as relu, gelu or silu. "
            f"Received: activation={options.activation!r}."
        ) from error
    make = layers.GatedFeedForward if options.gated else layers.FeedForward
    return make(
        options.intermediate_dim,
        activation,
        options.feed_forward_dropout,
        use_bias=options.use_bias,
        dtype=dtype,
        name="feed_forward",
    )


def _block_arguments(options, name, dtype):
    return {
        "feed_forward": feed_forward(options, dtype),
        "normalize_first": options.normalize_first,
        "dropout": options.dropout,
        "normalization": options.normalization,
        "dtype": dtype,
        "name": name,
    }


def _keep_mask(*norms):
    # Keras' RMSNormalization does not say that each position stays where it is, and warns of masks.
    for norm in norms:
        norm.supports_masking = True


def encoder_blocks(options: TransformerOptions, dtype, causal=False, name="encoder_block"):
    """Returns the blocks of an encoder, or with a causal mask of a language model.

    Args:
        options: The options.
        dtype: Dtype or policy.
        causal: Whether the blocks will be called with a causal mask.
        name: Name of the blocks, which a number follows.
    """
    blocks = [
        layers.TransformerEncoderBlock(
            self_attention(options, "attention", dtype, positions),
            **_block_arguments(options, f"{name}_{index}", dtype),
        )
        for index, positions in enumerate(attention_positions(options, causal, dtype))
    ]
    for block in blocks:
        _keep_mask(*block.norms)
    return blocks


def decoder_blocks(options: TransformerOptions, dtype, name="decoder_block"):
    """Returns the blocks of a decoder, which attend to themselves and to a memory.

    Args:
        options: The options.
        dtype: Dtype or policy.
        name: Name of the blocks, which a number follows.
    """
    blocks = [
        layers.TransformerDecoderBlock(
            self_attention(options, "self_attention", dtype, positions),
            full_attention(options, "cross_attention", dtype),
            **_block_arguments(options, f"{name}_{index}", dtype),
        )
        for index, positions in enumerate(attention_positions(options, True, dtype))
    ]
    for block in blocks:
        _keep_mask(*block.norms)
    return blocks


def final_norm(options: TransformerOptions, name, dtype):
    """Returns the normalisation behind a stack of pre-norm blocks; post-norm blocks end with their own: `None`.

    Args:
        options: The options.
        name: The layer's name.
        dtype: Dtype or policy.
    """
    if not options.normalize_first:
        return None
    norm = NORMALIZATIONS[options.normalization](epsilon=1e-5, dtype=dtype, name=name)
    _keep_mask(norm)
    return norm
