"""Cases of the contract: attention layers whose cost does not grow with T · S.

Windows and blocks are wider than the sequences here, so that the masks alone decide; test_blocked.py has narrow ones.
"""

from support.layers.contract import ATTENTION, DROPOUT, FLAT, Case

from zoo import layers

# Weights of the projections of seven heads of sizes 19 and 23.
_PROJECTIONS = 7 * (19 * (11 + 17) + 23 * 13 + 23 * 11)
_BIASES = 7 * (19 + 19 + 23) + 11
_HEADS = {"output": (2, 3, 11), "weights": (2, 7, 3, 5), **ATTENTION}


CASES = [
    Case(
        "sliding_window_attention",
        layers.SlidingWindowAttention,
        lambda policy: layers.SlidingWindowAttention(
            7, 19, window=5, value_dim=23, positions=layers.ShawRelativePositions(2, dtype=policy), dtype=policy
        ),
        parameters=_PROJECTIONS + _BIASES + 5 * (19 + 23),
        flat=FLAT,
        **_HEADS,
    ),
    Case(
        "block_local_attention",
        layers.BlockLocalAttention,
        lambda policy: layers.BlockLocalAttention(
            7,
            19,
            block_size=7,
            query_dim=37,
            value_dim=23,
            score=layers.AdditiveScore(31, dtype=policy),
            use_bias=False,
            dtype=policy,
            **DROPOUT,
        ),
        parameters=_PROJECTIONS + 7 * (37 - 19) * 11 + 31 * (37 + 1 + 19 + 1),
        **_HEADS,
    ),
    Case(
        "linear_attention",
        layers.LinearAttention,
        lambda policy: layers.LinearAttention(
            7, 19, value_dim=23, positions=layers.RotaryPositions(dtype=policy), dtype=policy
        ),
        parameters=_PROJECTIONS + _BIASES,
        **_HEADS,
    ),
    Case(
        "performer_attention",
        layers.PerformerAttention,
        lambda policy: layers.PerformerAttention(7, 19, num_features=43, value_dim=23, seed=3, dtype=policy),
        parameters=_PROJECTIONS + _BIASES + 19 * 43,
        **_HEADS,
    ),
    Case(
        "latent_attention",
        layers.MultiHeadLatentAttention,
        lambda policy: layers.MultiHeadLatentAttention(7, 19, latent_dim=31, rope_dim=6, value_dim=23, dtype=policy),
        parameters=13 * 31 + 17 * 6 + 31 + 31 * 7 * (13 + 23) + 11 * 7 * 19 + 7 * 23 * 11,
        **_HEADS,
    ),
    Case(
        "latent_attention_with_latent_queries",
        layers.MultiHeadLatentAttention,
        lambda policy: layers.MultiHeadLatentAttention(
            7,
            19,
            latent_dim=5,
            rope_dim=6,
            query_latent_dim=3,
            latent_norm=False,
            use_bias=True,
            logit_softcap=1.5,
            dtype=policy,
            **DROPOUT,
        ),
        parameters=(13 + 1) * 5 + (17 + 1) * 6 + 5 * 7 * 2 * 13 + (11 + 1) * 3 + 3 * 7 * 19 + (7 * 13 + 1) * 11,
        **_HEADS,
    ),
    Case(
        "multi_scale_retention",
        layers.MultiScaleRetention,
        lambda policy: layers.MultiScaleRetention(7, 19, value_dim=23, epsilon=1e-3, dtype=policy),
        parameters=_PROJECTIONS + 7 * 23 * 11,
        whole=False,
        signed=True,
        **_HEADS,
    ),
    Case(
        "multi_scale_retention_with_decays",
        layers.MultiScaleRetention,
        lambda policy: layers.MultiScaleRetention(
            7, 19, value_dim=23, decays=(0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0), use_bias=True, epsilon=1e-3, dtype=policy
        ),
        parameters=_PROJECTIONS + _BIASES + 7 * 23 * (11 + 1),
        whole=False,
        signed=True,
        **_HEADS,
    ),
    Case(
        "gated_linear_attention",
        layers.GatedLinearAttention,
        lambda policy: layers.GatedLinearAttention(
            7, 19, value_dim=23, decay_rank=5, decay_temperature=2.0, use_bias=True, epsilon=1e-3, dtype=policy
        ),
        parameters=_PROJECTIONS + _BIASES + 7 * 23 * (11 + 1) + 17 * 5 + (5 + 1) * 7 * 19,
        whole=False,
        signed=True,
        **_HEADS,
    ),
    Case(
        "delta_rule_attention",
        layers.DeltaRuleAttention,
        lambda policy: layers.DeltaRuleAttention(7, 19, value_dim=23, use_bias=True, epsilon=1e-3, dtype=policy),
        parameters=_PROJECTIONS + _BIASES + 7 * (17 + 1),
        whole=False,
        signed=True,
        **_HEADS,
    ),
]
