"""Cases of the contract: positions."""

from contract import Case

from zoo import layers

CASES = [
    Case(
        "sinusoidal_positions",
        layers.SinusoidalPositions,
        lambda policy: layers.SinusoidalPositions(max_wavelength=97.0, dtype=policy),
        {"inputs": (2, 5, 22)},
        (2, 5, 22),
        0,
    ),
]
