"""Cases of the contract: blocks and their parts."""

from support.layers.contract import DROPOUT, FLAT, Case

from zoo import layers

_SELF = {
    "inputs": {"query": (2, 5, 22)},
    "output": (2, 5, 22),
    "hides": {name: ("query",) for name in ("query_mask", "value_mask", "key_mask")},
}
_ENCODER = {"inputs": {"inputs": (2, 3, 11)}, "output": (2, 3, 11), "hides": {"mask": ("inputs",)}}
_DECODER = {
    "inputs": {"inputs": (2, 3, 11), "memory": (2, 5, 13)},
    "output": (2, 3, 11),
    "weights": (2, 7, 3, 5),
    "hides": {"mask": ("inputs",), "memory_mask": ("memory",)},
}


def _multi_head(policy, name=None):
    return layers.MultiHeadAttention(7, 19, dtype=policy, name=name)


def _feed_forward(policy):
    return layers.FeedForward(31, dtype=policy, name="feed_forward")


def _gated(policy):
    return layers.GatedFeedForward(31, dtype=policy, name="feed_forward")


def _encoder(attention, policy, feed_forward=None, **options):
    return layers.TransformerEncoderBlock(attention, feed_forward or _feed_forward(policy), dtype=policy, **options)


def _decoder(policy, feed_forward=None, **options):
    feed_forward = feed_forward or _feed_forward(policy)
    parts = _multi_head(policy, "self_attention"), _multi_head(policy, "cross_attention"), feed_forward
    return layers.TransformerDecoderBlock(*parts, dtype=policy, **options)


CASES = [
    Case(
        "feed_forward",
        layers.FeedForward,
        lambda policy: layers.FeedForward(31, activation="gelu", dtype=policy, **DROPOUT),
        {"inputs": (2, 3, 11)},
        (2, 3, 11),
        (11 + 1) * 31 + (31 + 1) * 11,
    ),
    Case(
        "feed_forward_without_bias",
        layers.FeedForward,
        lambda policy: layers.FeedForward(31, activation="silu", use_bias=False, dtype=policy),
        {"inputs": (2, 3, 11)},
        (2, 3, 11),
        11 * 31 + 31 * 11,
    ),
    Case(
        "gated_feed_forward",
        layers.GatedFeedForward,
        lambda policy: layers.GatedFeedForward(31, dtype=policy),
        {"inputs": (2, 3, 11)},
        (2, 3, 11),
        2 * 11 * 31 + 31 * 11,
    ),
    Case(
        "gated_feed_forward_gelu",
        layers.GatedFeedForward,
        lambda policy: layers.GatedFeedForward(31, activation="gelu", use_bias=True, dtype=policy, **DROPOUT),
        {"inputs": (2, 3, 11)},
        (2, 3, 11),
        2 * 12 * 31 + 32 * 11,
    ),
    Case(
        "maxout",
        layers.Maxout,
        lambda policy: layers.Maxout(group_size=3, dtype=policy),
        {"inputs": (2, 5, 33)},
        (2, 5, 11),
        0,
    ),
    Case(
        "pre_norm_encoder_block",
        layers.TransformerEncoderBlock,
        lambda policy: _encoder(_multi_head(policy), policy, normalize_first=True, epsilon=1e-3, **DROPOUT),
        weights=(2, 7, 3, 3),
        parameters=3 * 12 * 133 + 134 * 11 + 12 * 31 + 32 * 11 + 2 * 22,
        flat=FLAT,
        **_ENCODER,
    ),
    Case(
        "parallel_encoder_block",
        layers.TransformerEncoderBlock,
        lambda policy: _encoder(_multi_head(policy), policy, normalize_first=True, parallel_residual=True, **DROPOUT),
        weights=(2, 7, 3, 3),
        parameters=3 * 12 * 133 + 134 * 11 + 12 * 31 + 32 * 11 + 2 * 22,
        flat=FLAT,
        **_ENCODER,
    ),
    Case(
        "sandwich_norm_encoder_block",
        layers.TransformerEncoderBlock,
        lambda policy: _encoder(_multi_head(policy), policy, normalize_first=True, sandwich_norm=True, **DROPOUT),
        weights=(2, 7, 3, 3),
        parameters=3 * 12 * 133 + 134 * 11 + 12 * 31 + 32 * 11 + 4 * 22,
        flat=FLAT,
        **_ENCODER,
    ),
    Case(
        "res_post_norm_encoder_block",
        layers.TransformerEncoderBlock,
        lambda policy: _encoder(_multi_head(policy), policy, res_post_norm=True, **DROPOUT),
        weights=(2, 7, 3, 3),
        parameters=3 * 12 * 133 + 134 * 11 + 12 * 31 + 32 * 11 + 2 * 22,
        flat=FLAT,
        **_ENCODER,
    ),
    Case(
        "post_norm_single_head_encoder_block",
        layers.TransformerEncoderBlock,
        lambda policy: _encoder(layers.AdditiveAttention(31, dtype=policy), policy),
        weights=(2, 3, 3),
        parameters=31 * (11 + 1 + 11 + 1) + 12 * 31 + 32 * 11 + 2 * 22,
        **_ENCODER,
    ),
    Case(
        "pre_norm_decoder_block",
        layers.TransformerDecoderBlock,
        lambda policy: _decoder(policy, normalize_first=True, epsilon=1e-3, **DROPOUT),
        parameters=3 * 12 * 133 + 134 * 11 + (12 + 14 + 14) * 133 + 134 * 11 + 12 * 31 + 32 * 11 + 3 * 22,
        flat=FLAT,
        **_DECODER,
    ),
    Case(
        "post_norm_decoder_block",
        layers.TransformerDecoderBlock,
        lambda policy: _decoder(policy),
        parameters=3 * 12 * 133 + 134 * 11 + (12 + 14 + 14) * 133 + 134 * 11 + 12 * 31 + 32 * 11 + 3 * 22,
        flat=FLAT,
        **_DECODER,
    ),
    Case(
        "rms_norm_encoder_block",
        layers.TransformerEncoderBlock,
        lambda policy: _encoder(
            _multi_head(policy), policy, _gated(policy), normalize_first=True, normalization="rms_norm"
        ),
        weights=(2, 7, 3, 3),
        parameters=3 * 12 * 133 + 134 * 11 + 3 * 11 * 31 + 2 * 11,
        flat=FLAT,
        **_ENCODER,
    ),
    Case(
        "rms_norm_decoder_block",
        layers.TransformerDecoderBlock,
        lambda policy: _decoder(policy, _gated(policy), normalization="rms_norm"),
        parameters=3 * 12 * 133 + 134 * 11 + (12 + 14 + 14) * 133 + 134 * 11 + 3 * 11 * 31 + 3 * 11,
        flat=FLAT,
        **_DECODER,
    ),
    Case(
        "lightweight_convolution",
        layers.LightweightConvolution,
        lambda policy: layers.LightweightConvolution(
            11, 4, padding="causal", use_bias=False, kernel_initializer="he_normal", dtype=policy, **DROPOUT
        ),
        parameters=22 * 44 + 11 * 4 + 22 * 22,
        weights=(2, 11, 5, 5),
        whole=False,
        **_SELF,
    ),
    Case(
        "dynamic_convolution",
        layers.DynamicConvolution,
        lambda policy: layers.DynamicConvolution(11, 3, dtype=policy, **DROPOUT),
        parameters=(22 + 1) * 44 + 22 * 11 * 3 + (22 + 1) * 22,
        weights=(2, 11, 5, 5),
        whole=False,
        **_SELF,
    ),
    Case(
        "causal_dynamic_convolution",
        layers.DynamicConvolution,
        lambda policy: layers.DynamicConvolution(11, 7, padding="causal", dtype=policy, **DROPOUT),
        parameters=(22 + 1) * 44 + 22 * 11 * 7 + (22 + 1) * 22,
        weights=(2, 11, 5, 5),
        whole=False,
        **_SELF,
    ),
    Case(
        "average_attention",
        layers.AverageAttention,
        lambda policy: layers.AverageAttention(31, use_bias=False, dtype=policy),
        parameters=22 * 31 * 2 + 44 * 44,
        weights=(2, 1, 5, 5),
        **_SELF,
    ),
    Case(
        "ssru",
        layers.SSRU,
        lambda policy: layers.SSRU(use_bias=False, kernel_initializer="he_normal", dtype=policy),
        parameters=2 * 22 * 22,
        **_SELF,
    ),
    Case(
        "gated_convolution_block",
        layers.GatedConvolutionBlock,
        lambda policy: layers.GatedConvolutionBlock(3, dtype=policy),
        {"inputs": (2, 7, 11)},
        (2, 7, 11),
        (3 * 11 + 1) * 22,
        hides={"mask": ("inputs",)},
    ),
    Case(
        "causal_convolution_block",
        layers.GatedConvolutionBlock,
        lambda policy: layers.GatedConvolutionBlock(
            2, padding="causal", kernel_initializer="he_normal", dtype=policy, **DROPOUT
        ),
        {"inputs": (2, 7, 11)},
        (2, 7, 11),
        (2 * 11 + 1) * 22,
        hides={"mask": ("inputs",)},
    ),
    Case(
        "convolution_block_with_attention",
        layers.GatedConvolutionBlock,
        lambda policy: layers.GatedConvolutionBlock(
            3, padding="causal", attention=layers.AdditiveAttention(31, dtype=policy), dtype=policy
        ),
        {
            "inputs": (2, 3, 11),
            "target_embedding": (2, 3, 13),
            "memory": (2, 5, 17),
            "memory_embedding": (2, 5, 17),
        },
        (2, 3, 11),
        (3 * 11 + 1) * 22 + (11 + 1) * 13 + 31 * (13 + 1 + 17 + 1) + 17 * 11,
        weights=(2, 3, 5),
        hides={"mask": ("inputs", "target_embedding"), "memory_mask": ("memory", "memory_embedding")},
    ),
]
