"""Rotary positions against the matrix of their formula, and an example computed by hand."""

import numpy as np
from keras import ops
from support.layers.contract import compiled, random_array, to_numpy
from support.layers.positions import int_tensor, rotate

from zoo.layers import (
    RotaryPositions,
)


def test_rotary():
    heads = random_array((2, 7, 3, 19), 1)
    for fraction, size, start in ((1.0, 18, 3), (0.5, 8, 0), (0.25, 4, 1001), (0.11, 2, 3)):
        output = to_numpy(RotaryPositions(97.0, fraction)(heads, start_index=start))
        for b, n, t in np.ndindex(2, 7, 3):
            expected = rotate(heads[b, n, t], start + t, size, 97.0)
            np.testing.assert_allclose(output[b, n, t], expected, atol=1e-6 if start < 10 else 2e-4)


def test_rotary_by_hand():
    # The first pair turns by 1 for each position, the second by 1 / √w = 1/4: cosines and sines of those.
    heads = np.array([[[[1.0, 0.0, 1.0, 0.0]] * 2]], "float32")
    output = to_numpy(RotaryPositions(max_wavelength=16.0)(heads, start_index=0))[0, 0]
    np.testing.assert_allclose(output[0], [1, 0, 1, 0], atol=1e-7)
    np.testing.assert_allclose(output[1], [0.540302, 0.841471, 0.968912, 0.247404], atol=1e-6)


def test_rotary_products_depend_on_the_distance_alone():
    for fraction in (1.0, 0.5):
        positions, query, key = RotaryPositions(fraction=fraction), *random_array((2, 1, 1, 1, 20), 1)
        products = {}
        for first, second in [(0, 0), (3, 3), (5, 0), (12, 7), (105, 100), (0, 5), (7, 12)]:
            turned = to_numpy(positions.rotate(query, first)), to_numpy(positions.rotate(key, second))
            products.setdefault(first - second, []).append(np.sum(turned[0] * turned[1]))
        for same in products.values():
            np.testing.assert_allclose(same, same[0], atol=1e-5)
        assert abs(products[5][0] - products[-5][0]) > 1e-2 and abs(products[5][0] - products[0][0]) > 1e-2


def test_rotary_keeps_lengths_and_tells_far_positions_apart_in_low_precision():
    heads, layer = random_array((1, 1, 2, 8), 1), RotaryPositions(dtype="mixed_bfloat16")
    output = to_numpy(layer(heads, start_index=int_tensor(257)))
    np.testing.assert_allclose((output**2).sum(-1), (heads**2).sum(-1), rtol=2e-2)
    for t in range(2):
        np.testing.assert_allclose(output[0, 0, t], rotate(heads[0, 0, t], 257 + t, 8, 10000.0), atol=1e-2)


def test_several_rotations_of_one_position_in_a_graph():
    """A step of decoding computes the cosines and sines of a position once for each layer and size."""
    first, other = RotaryPositions(), RotaryPositions(max_wavelength=100.0)
    heads, short = random_array((2, 3, 1, 8), 1), random_array((2, 3, 1, 4), 2)

    def rotated(heads, short, start):
        return [layer.rotate(rows, start) for layer in (first, other) for rows in (heads, short, heads + 1)]

    results = compiled(rotated, xla=False)(*map(ops.convert_to_tensor, (heads, short)), int_tensor(5))
    expected = [to_numpy(layer.rotate(rows, 5)) for layer in (first, other) for rows in (heads, short, heads + 1)]
    for result, reference in zip(results, expected, strict=True):
        np.testing.assert_allclose(to_numpy(result), reference, atol=1e-5)
