"""Extrapolatable positions against loops written from their formula."""

import math

import numpy as np
import pytest
from keras import ops
from support.layers.contract import random_array, randomize, to_numpy
from support.layers.positions import rotate

import zoo
from zoo import layers
from zoo.layers import Positions, RotaryPositions, XPosPositions

B = 32.0


def _scaled(head, position, size, sign, layout):
    """Returns one head [H], rotated and scaled by ζᵢ to the power of sign · p/b."""
    turned = rotate(head, position, size, 97.0, layout=layout)
    for pair in range(size // 2):
        zeta = (pair / (size / 2) + 0.4) / 1.4
        places = [2 * pair, 2 * pair + 1] if layout == "interleaved" else [pair, pair + size // 2]
        turned[places] *= zeta ** (sign * position / B)
    return turned


def test_queries_and_keys():
    heads = random_array((2, 3, 5, 19), 1)
    for layout, fraction, size in (("interleaved", 1.0, 18), ("half_split", 1.0, 18), ("half_split", 0.5, 8)):
        layer = XPosPositions(97.0, B, fraction=fraction, layout=layout)
        results = {1: to_numpy(layer.rotate_query(heads, 11)), -1: to_numpy(layer.rotate_key(heads, 11))}
        for sign, result in results.items():
            for b, n, t in np.ndindex(2, 3, 5):
                expected = _scaled(heads[b, n, t], 11 + t, size, sign, layout)
                np.testing.assert_allclose(result[b, n, t], expected, atol=5e-6)


def test_by_hand():
    # One pair, ζ = 0.4 / 1.4 = 2/7; a query at b is scaled by 2/7, a key by 7/2; only the distance counts.
    ones, layer = np.array([[[[1.0, 0.0]]]], "float32"), XPosPositions(scale_base=3)
    query, key = (to_numpy(turn(ones, 3))[0, 0, 0] for turn in (layer.rotate_query, layer.rotate_key))
    np.testing.assert_allclose(query, [2 / 7 * math.cos(3), 2 / 7 * math.sin(3)], rtol=1e-5)
    np.testing.assert_allclose(key, [7 / 2 * math.cos(3), 7 / 2 * math.sin(3)], rtol=1e-5)


def test_products_depend_on_the_distance_alone_and_decay():
    layer, query, key = XPosPositions(scale_base=B), *random_array((2, 1, 1, 1, 20), 1)

    def product(first, second):
        return np.sum(to_numpy(layer.rotate_query(query, first)) * to_numpy(layer.rotate_key(key, second)))

    for distance in (0, 5, 64):
        products = [product(start + distance, start) for start in (0, 7, 100)]
        np.testing.assert_allclose(products, products[0], atol=2e-5)
    np.testing.assert_allclose(product(5, 5), np.sum(query * key), rtol=1e-5)
    turned = to_numpy(layer.rotate_query(query, 64)), to_numpy(layer.rotate_key(key, 0))
    fast = np.abs(turned[0] * turned[1])[0, 0, 0, :2].sum()
    assert fast < 0.1 * np.abs(query)[0, 0, 0, :2].max() * np.abs(key)[0, 0, 0, :2].max() * 2


def test_a_large_base_is_rotary():
    inputs, outputs = random_array((2, 6, 22), 1), []
    for positions in (XPosPositions(scale_base=1e9), RotaryPositions()):
        layer = layers.MultiHeadAttention(7, 4, positions=positions)
        layer.build(inputs.shape, inputs.shape)
        outputs.append(to_numpy(randomize(layer)(inputs, inputs, use_causal_mask=True)))
    np.testing.assert_allclose(*outputs, atol=1e-5)


def test_what_a_subclass_rotates_alike_stays_alike():
    class Doubled(Positions):
        def rotate(self, heads, start_index=0):
            return 2.0 * heads

    inputs = random_array((1, 5, 6), 1)
    layer = layers.MultiHeadAttention(2, 3, positions=Doubled())
    layer.build(inputs.shape, inputs.shape)
    randomize(layer)
    doubled, plain = (
        layer.project_query(inputs),
        layers.MultiHeadAttention.from_config({**layer.get_config(), "positions": None}),
    )
    plain.build(inputs.shape, inputs.shape)
    plain.set_weights(layer.get_weights())
    np.testing.assert_allclose(to_numpy(doubled), 2 * to_numpy(plain.project_query(inputs)), rtol=1e-6)
    key, expected = (each.project_memory(ops.convert_to_tensor(inputs))["key"] for each in (layer, plain))
    np.testing.assert_allclose(to_numpy(key), 2 * to_numpy(expected), rtol=1e-6)


def test_a_trace_tells_queries_from_keys():
    inputs = random_array((1, 3, 8), 1)
    trace = zoo.trace(layers.MultiHeadAttention(2, 4, positions=XPosPositions(scale_base=4)), inputs)
    positions = XPosPositions(scale_base=4)
    expected = to_numpy(positions.rotate_query(ops.convert_to_tensor(trace["query_unrotated"])))
    np.testing.assert_allclose(np.array(trace["query"]), expected, atol=1e-6)
    expected = to_numpy(positions.rotate_key(ops.convert_to_tensor(trace["key_unrotated"])))
    np.testing.assert_allclose(np.array(trace["key"]), expected, atol=1e-6)


def test_errors():
    with pytest.raises(ValueError, match="scale_base.*0"):
        XPosPositions(scale_base=0)
    with pytest.raises(NotImplementedError, match="XPosPositions"):
        XPosPositions()(np.zeros((1, 1, 2, 4), "float32"))
