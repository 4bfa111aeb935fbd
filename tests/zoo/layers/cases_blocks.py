"""Cases of the contract: blocks and their parts."""

from contract import DROPOUT, FLAT, Case

from zoo import layers

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


def _encoder(attention, policy, **options):
    return layers.TransformerEncoderBlock(attention, _feed_forward(policy), dtype=policy, **options)


def _decoder(policy, **options):
    parts = _multi_head(policy, "self_attention"), _multi_head(policy, "cross_attention"), _feed_forward(policy)
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
]
