"""Cases of the contract: attention layers."""

from contract import ATTENTION, DROPOUT, FLAT, HIDES, QUERY_VALUE_KEY, Case

from zoo import layers


def _multi_head(policy, name=None):
    return layers.MultiHeadAttention(7, 19, dtype=policy, name=name)


CASES = [
    Case(
        "additive_attention",
        layers.AdditiveAttention,
        lambda policy: layers.AdditiveAttention(
            31, use_bias=False, kernel_initializer="he_normal", dtype=policy, **DROPOUT
        ),
        output=(2, 3, 13),
        weights=(2, 3, 5),
        parameters=31 * (11 + 17 + 1),
        **ATTENTION,
    ),
    Case(
        "attention",
        layers.Attention,
        lambda policy: layers.Attention(layers.AdditiveScore(31, dtype=policy), dtype=policy, **DROPOUT),
        output=(2, 3, 13),
        weights=(2, 3, 5),
        parameters=31 * (11 + 1 + 17 + 1),
        **ATTENTION,
    ),
    Case(
        "scaled_dot_product_attention",
        layers.ScaledDotProductAttention,
        lambda policy: layers.ScaledDotProductAttention(dtype=policy, **DROPOUT),
        {**QUERY_VALUE_KEY, "key": (2, 5, 11)},
        output=(2, 3, 13),
        weights=(2, 3, 5),
        parameters=0,
        hides=HIDES,
    ),
    Case(
        "multi_head_attention",
        layers.MultiHeadAttention,
        lambda policy: _multi_head(policy),
        output=(2, 3, 11),
        weights=(2, 7, 3, 5),
        parameters=7 * 19 * (11 + 1 + 17 + 1 + 13 + 1) + (7 * 19 + 1) * 11,
        flat=FLAT,
        **ATTENTION,
    ),
    Case(
        "multi_head_additive_attention",
        layers.MultiHeadAttention,
        lambda policy: layers.MultiHeadAttention(
            num_heads=7,
            key_dim=19,
            value_dim=23,
            output_dim=29,
            score=layers.AdditiveScore(31, dtype=policy),
            use_bias=False,
            kernel_initializer="he_normal",
            dtype=policy,
            **DROPOUT,
        ),
        output=(2, 3, 29),
        weights=(2, 7, 3, 5),
        parameters=7 * (19 * 11 + 19 * 17 + 23 * 13 + 23 * 29) + 31 * (19 + 1 + 19 + 1),
        **ATTENTION,
    ),
]
