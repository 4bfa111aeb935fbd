"""Cases of the contract: score functions."""

from contract import Case

from zoo import layers

CASES = [
    Case(
        "scaled_dot_score",
        layers.ScaledDotScore,
        lambda policy: layers.ScaledDotScore(dtype=policy),
        {"query": (2, 3, 11), "key": (2, 5, 11)},
        (2, 3, 5),
        0,
    ),
    Case(
        "additive_score",
        layers.AdditiveScore,
        lambda policy: layers.AdditiveScore(31, use_bias=False, kernel_initializer="he_normal", dtype=policy),
        {"query": (2, 3, 11), "key": (2, 5, 17)},
        (2, 3, 5),
        31 * (11 + 17 + 1),
    ),
]
