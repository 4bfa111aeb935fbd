"""Positions of all kinds, built, and what the tests of several kinds compare them with."""

import math

import numpy as np
import pytest
from keras import ops
from support.layers.contract import (
    randomize,
)

from zoo.layers import (
    ALiBiPositions,
    LearnedPositions,
    RotaryPositions,
    ShawRelativePositions,
    SinusoidalPositions,
    T5RelativePositions,
    XPosPositions,
)

SIZES = {"num_heads": 7, "key_dim": 19, "value_dim": 23, "query_dim": 22, "memory_dim": 22}

# Positions in no order, some twice and some before the start: nothing may rest on their being consecutive.
QUERY_POSITIONS, KEY_POSITIONS = np.array([4, -3, 11], "int32"), np.array([0, 9, 4, 4, -7], "int32")


def build_positions(positions, **sizes):
    positions.build_for_attention(**{**SIZES, **sizes})
    return randomize(positions)


def int_tensor(value):
    return ops.convert_to_tensor(value, "int32")


def sinusoids(length, size, wavelength=10000.0, start=0):
    table = np.zeros((length, size))
    for position in range(length):
        for pair in range(size // 2):
            angle = (start + position) / wavelength ** (2 * pair / size)
            table[position, 2 * pair], table[position, 2 * pair + 1] = np.sin(angle), np.cos(angle)
    return table


def rotate(head, position, size, wavelength, rates=None, layout="interleaved"):
    """Returns one head [H] with its first `size` features turned: the matrix of equation 15, pair after pair."""
    turned = head.astype("float64").copy()
    for pair in range(size // 2):
        angle = position * (wavelength ** (-2 * pair / size) if rates is None else rates[pair])
        matrix = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        places = [2 * pair, 2 * pair + 1] if layout == "interleaved" else [pair, pair + size // 2]
        turned[places] = matrix @ head[places]
    return turned


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

POSITIONS = {
    "sinusoidal": lambda **options: SinusoidalPositions(**options),
    "learned": lambda **options: LearnedPositions(41, **options),
    "rotary": lambda **options: RotaryPositions(fraction=0.5, **options),
    "rotary_yarn": lambda **options: RotaryPositions(layout="half_split", scaling=YARN, **options),
    "xpos": lambda **options: XPosPositions(scale_base=64, **options),
    "alibi": lambda **options: ALiBiPositions(**options),
    "shaw": lambda **options: ShawRelativePositions(3, **options),
    "t5": lambda **options: T5RelativePositions(8, 11, **options),
}

every_kind = pytest.mark.parametrize("make", POSITIONS.values(), ids=POSITIONS)

RELATIVE = ("alibi", "shaw", "t5")


def pair_terms(positions, query, weights, query_positions, key_positions):
    """Returns the terms of all pairs, by name."""
    terms = {
        "bias": positions.bias(query_positions, key_positions),
        "scores": positions.scores(query, query_positions, key_positions),
        "values": positions.values(weights, query_positions, key_positions),
    }
    return {name: term for name, term in terms.items() if term is not None}
