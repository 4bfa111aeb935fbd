"""One seed per text, which makes samples independent of how a server batches the texts."""

from typing import Any

import numpy as np

# The constants of `zoo.decoding.counter_based_random`, and the inverses of the factors modulo 2³².
_STEP = 0x1E3779B9
_FACTORS = (0x21F0AAAD, 0x735A2D97)
_INVERSES = tuple(pow(factor, -1, 1 << 32) for factor in _FACTORS)


def row_seeds(seed: int, rows: range) -> np.ndarray:
    """Returns a seed for each row, int32; that of row 0 is `seed` itself.

    Sampling a text alone with its seed gives the same result as sampling it as row n of texts that share `seed`, as in
    `zoo.inference`. The state after the seed s and the row n is mix((mix(s + c) xor n) + c); the row 0 with the seed
    mix⁻¹(mix(s + c) xor n) − c has the same state.
    """
    shared = _mix(np.array([seed]).astype(np.uint32) + np.uint32(_STEP))
    seeds: np.ndarray = _unmix(shared ^ np.array(rows, np.uint32)) - np.uint32(_STEP)
    return seeds.astype(np.int32)


def _mix(x: Any) -> Any:
    for bits, factor in zip((16, 15), _FACTORS, strict=True):
        x = (x ^ x >> bits) * np.uint32(factor)
    return x ^ x >> 15


def _unmix(x: Any) -> Any:
    for inverse in reversed(_INVERSES):
        x = (x ^ x >> 15 ^ x >> 30) * np.uint32(inverse)
    return x ^ x >> 16
