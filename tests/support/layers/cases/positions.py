"""Cases of the contract: positions.

Those that live in attention only come inside a multi-head layer.
"""

from support.layers.contract import ATTENTION, FLAT, Case

from zoo import layers

_INPUTS = {"inputs": {"inputs": (2, 5, 22)}, "output": (2, 5, 22)}
_HEADS = {"output": (2, 3, 11), "weights": (2, 7, 3, 5), "part": lambda layer: layer.positions, **ATTENTION}


def _parameters(encoding=0):
    """Weights of seven heads of sizes 19 and 23, where query and key have gained `encoding` features."""
    return 7 * (19 * (11 + encoding + 1 + 17 + encoding + 1) + 23 * (13 + 1)) + (7 * 23 + 1) * 11


def _multi_head(positions, policy):
    return layers.MultiHeadAttention(7, 19, value_dim=23, positions=positions, dtype=policy)


CASES = [
    Case(
        "sinusoidal_positions",
        layers.SinusoidalPositions,
        lambda policy: layers.SinusoidalPositions(max_wavelength=97.0, dtype=policy),
        parameters=0,
        **_INPUTS,
    ),
    Case(
        "concatenated_sinusoidal_positions",
        layers.SinusoidalPositions,
        lambda policy: layers.SinusoidalPositions(concatenate=True, size=14, dtype=policy),
        {"inputs": (2, 5, 11)},
        (2, 5, 11 + 14),
        0,
    ),
    Case(
        "integer_positions",
        layers.IntegerPositions,
        lambda policy: layers.IntegerPositions(dtype=policy),
        parameters=0,
        **_INPUTS,
    ),
    Case(
        "concatenated_normalized_integer_positions",
        layers.IntegerPositions,
        lambda policy: layers.IntegerPositions(max_length=7, concatenate=True, size=3, dtype=policy),
        {"inputs": (2, 5, 11)},
        (2, 5, 11 + 3),
        0,
    ),
    Case(
        "learned_positions",
        layers.LearnedPositions,
        lambda policy: layers.LearnedPositions(37, initializer="he_normal", dtype=policy),
        parameters=37 * 22,
        **_INPUTS,
    ),
    Case(
        "concatenated_learned_positions_in_attention",
        layers.LearnedPositions,
        lambda policy: _multi_head(layers.LearnedPositions(37, concatenate=True, size=31, dtype=policy), policy),
        parameters=_parameters(31) + 37 * 31,
        flat=FLAT,
        **_HEADS,
    ),
    Case(
        "rotary_positions",
        layers.RotaryPositions,
        lambda policy: layers.RotaryPositions(max_wavelength=97.0, fraction=0.5, dtype=policy),
        {"heads": (2, 7, 5, 19)},
        (2, 7, 5, 19),
        0,
    ),
    Case(
        "rotary_positions_in_attention",
        layers.RotaryPositions,
        lambda policy: _multi_head(layers.RotaryPositions(dtype=policy), policy),
        parameters=_parameters(),
        **_HEADS,
    ),
    Case(
        "half_split_rotary_positions_with_llama3_scaling",
        layers.RotaryPositions,
        lambda policy: layers.RotaryPositions(
            layout="half_split",
            scaling={
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
            dtype=policy,
        ),
        {"heads": (2, 7, 5, 19)},
        (2, 7, 5, 19),
        0,
    ),
    Case(
        "rotary_positions_with_yarn_in_attention",
        layers.RotaryPositions,
        lambda policy: _multi_head(
            layers.RotaryPositions(
                fraction=0.5,
                scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
                dtype=policy,
            ),
            policy,
        ),
        parameters=_parameters(),
        **_HEADS,
    ),
    Case(
        "xpos_positions",
        layers.XPosPositions,
        lambda policy: _multi_head(layers.XPosPositions(97.0, scale_base=16.0, dtype=policy), policy),
        parameters=_parameters(),
        **_HEADS,
    ),
    Case(
        "alibi_positions",
        layers.ALiBiPositions,
        lambda policy: _multi_head(layers.ALiBiPositions(dtype=policy), policy),
        parameters=_parameters(),
        flat=FLAT,
        **_HEADS,
    ),
    Case(
        "shaw_relative_positions",
        layers.ShawRelativePositions,
        lambda policy: _multi_head(layers.ShawRelativePositions(2, dtype=policy), policy),
        parameters=_parameters() + 5 * (19 + 23),
        flat=FLAT,
        **_HEADS,
    ),
    Case(
        "shaw_relative_positions_of_keys",
        layers.ShawRelativePositions,
        lambda policy: _multi_head(
            layers.ShawRelativePositions(3, use_values=False, initializer="he_normal", dtype=policy), policy
        ),
        parameters=_parameters() + 7 * 19,
        flat=FLAT,
        **_HEADS,
    ),
    Case(
        "t5_relative_positions",
        layers.T5RelativePositions,
        lambda policy: _multi_head(
            layers.T5RelativePositions(6, max_distance=3, initializer="he_normal", dtype=policy), policy
        ),
        parameters=_parameters() + 7 * 6,
        flat=FLAT,
        **_HEADS,
    ),
    Case(
        "causal_t5_relative_positions",
        layers.T5RelativePositions,
        lambda policy: _multi_head(
            layers.T5RelativePositions(3, max_distance=2, bidirectional=False, dtype=policy), policy
        ),
        parameters=_parameters() + 7 * 3,
        flat=FLAT,
        **_HEADS,
    ),
]
