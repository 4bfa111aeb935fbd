"""Sinusoidal positions."""

import keras
import numpy as np
import pytest
from contract import random_array, to_numpy

from zoo.layers import SinusoidalPositions


def _reference(length, size, wavelength=10000.0, start=0):
    table = np.zeros((length, size))
    for position in range(length):
        for pair in range(size // 2):
            angle = (start + position) / wavelength ** (2 * pair / size)
            table[position, 2 * pair], table[position, 2 * pair + 1] = np.sin(angle), np.cos(angle)
    return table


@pytest.mark.parametrize("start", [0, 3, 4001])
@pytest.mark.parametrize("wavelength", [97.0, 10000.0])
def test_formula(start, wavelength):
    inputs = random_array((2, 5, 22), 1)
    output = to_numpy(SinusoidalPositions(wavelength)(inputs, start_index=start))
    expected = inputs + _reference(5, 22, wavelength, start)
    # float32 angles of a few thousand are good to some 1e-4.
    np.testing.assert_allclose(output, expected, atol=1e-6 if start < 10 else 1e-3)


def test_by_hand():
    # D = 2 has one frequency, 1: sin p and cos p.
    output = to_numpy(SinusoidalPositions()(np.array([[[1.0, 2.0], [3.0, 4.0]]], "float32")))
    np.testing.assert_allclose(output, [[[1.0, 3.0], [3.0 + 0.841471, 4.0 + 0.540302]]], rtol=1e-6)


def test_steps_are_slices_of_the_whole():
    layer, inputs = SinusoidalPositions(), random_array((2, 7, 10), 2)
    whole = to_numpy(layer(inputs))
    for position in range(7):
        step = layer(inputs[:, position : position + 1], start_index=keras.ops.convert_to_tensor(position, "int32"))
        np.testing.assert_allclose(to_numpy(step)[:, 0], whole[:, position], atol=5e-7)


def test_distance_alone_decides_the_product_of_two_positions():
    table = to_numpy(SinusoidalPositions()(np.zeros((1, 31, 26), "float32")))[0]
    products = table @ table.T
    for distance in (0, 1, 13):
        diagonal = np.diagonal(products, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-5)


def test_low_precision_tells_far_positions_apart():
    output = to_numpy(SinusoidalPositions(dtype="mixed_bfloat16")(np.zeros((1, 2, 8), "float32"), start_index=257))
    np.testing.assert_allclose(output[0], _reference(2, 8, start=257), atol=4e-3)


def test_errors():
    with pytest.raises(ValueError, match=r"The last axis must be even. Received: input_shape=\(2, 3, 5\)"):
        SinusoidalPositions()(np.zeros((2, 3, 5), "float32"))
    with pytest.raises(ValueError, match="`max_wavelength` must be positive. Received: max_wavelength=0"):
        SinusoidalPositions(0)
