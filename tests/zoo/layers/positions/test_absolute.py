"""Absolute positions against loops written from their formulas, and examples computed by hand."""

import keras
import numpy as np
import pytest
from support.layers.contract import compiled, random_array, randomize, to_numpy
from support.layers.positions import int_tensor, rotate, sinusoids

from zoo import layers
from zoo.layers import (
    LearnedPositions,
    RotaryPositions,
    SinusoidalPositions,
)
from zoo.layers.positions.absolute import AbsolutePositions


def test_sinusoids():
    inputs = random_array((2, 5, 22), 1)
    for wavelength, start in ((10000.0, 0), (97.0, 3), (97.0, 4001)):
        output = to_numpy(SinusoidalPositions(wavelength)(inputs, start_index=start))
        expected = inputs + sinusoids(5, 22, wavelength, start)
        # float32 angles of a few thousand are good to some 1e-4.
        np.testing.assert_allclose(output, expected, atol=1e-6 if start < 10 else 1e-3)


def test_sinusoids_by_hand():
    # D = 2 has one frequency, 1: sin p and cos p.
    output = to_numpy(SinusoidalPositions()(np.array([[[1.0, 2.0], [3.0, 4.0]]], "float32")))
    np.testing.assert_allclose(output, [[[1.0, 3.0], [3.0 + 0.841471, 4.0 + 0.540302]]], rtol=1e-6)


def test_distance_alone_decides_the_product_of_two_sinusoids():
    table = to_numpy(SinusoidalPositions()(np.zeros((1, 31, 26), "float32")))[0]
    products = table @ table.T
    for distance in (0, 1, 13):
        diagonal = np.diagonal(products, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-5)


def test_low_precision_tells_far_positions_apart():
    output = to_numpy(SinusoidalPositions(dtype="mixed_bfloat16")(np.zeros((1, 2, 8), "float32"), start_index=257))
    np.testing.assert_allclose(output[0], sinusoids(2, 8, start=257), atol=4e-3)


def test_learned_positions():
    layer = LearnedPositions(11)
    layer.build((2, 5, 6))
    table, inputs = to_numpy(randomize(layer).embeddings), random_array((2, 5, 6), 1)
    for start in (0, 3, 6):
        output = to_numpy(layer(inputs, start_index=start))
        for b, t in np.ndindex(2, 5):
            np.testing.assert_allclose(output[b, t], inputs[b, t] + table[start + t], rtol=1e-6)


def test_concatenated_positions():
    inputs = random_array((2, 5, 4), 1)
    for make in (LearnedPositions, lambda _, **options: SinusoidalPositions(**options)):
        layer = make(11, concatenate=True, size=6)
        output = to_numpy(layer(inputs, start_index=3))
        np.testing.assert_array_equal(output[:, :, :4], inputs)
        encodings = sinusoids(5, 6, start=3) if not layer.weights else to_numpy(layer.embeddings)[3:8]
        for sequence in output:
            np.testing.assert_allclose(sequence[:, 4:], encodings, atol=1e-6)
        # By default as many as there are features.
        alike = make(11, concatenate=True)
        assert alike(inputs).shape == (2, 5, 8) and alike.encoded_size(4) == 8 and layer.encoded_size(4) == 10


def test_learned_positions_by_hand():
    added, beside = LearnedPositions(3), LearnedPositions(3, concatenate=True, size=1)
    for layer, table in ((added, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), (beside, [[7.0], [8.0], [9.0]])):
        layer.build((1, 2, 2))
        layer.set_weights([np.array(table, "float32")])
    inputs = np.array([[[10.0, 20.0], [30.0, 40.0]]], "float32")
    np.testing.assert_array_equal(to_numpy(added(inputs, start_index=1)), [[[13, 24], [35, 46]]])
    np.testing.assert_array_equal(to_numpy(beside(inputs, start_index=1)), [[[10, 20, 8], [30, 40, 9]]])


def test_steps_are_slices_of_the_whole():
    inputs = random_array((2, 7, 10), 2)
    for layer in (LearnedPositions(7, concatenate=True, size=4), SinusoidalPositions()):
        whole = to_numpy(layer(inputs))
        for position in range(7):
            step = layer(inputs[:, position : position + 1], start_index=int_tensor(position))
            np.testing.assert_allclose(to_numpy(step)[:, 0], whole[:, position], atol=5e-7)


def test_behind_the_learned_table_its_last_row_goes_on():
    layer = LearnedPositions(5)
    layer.build((2, 3, 4))
    table, inputs = to_numpy(randomize(layer).embeddings), np.zeros((1, 3, 4), "float32")
    output = to_numpy(compiled(lambda inputs, start: layer(inputs, start_index=start), False)(inputs, int_tensor(3)))
    np.testing.assert_allclose(output[0], table[[3, 4, 4]], rtol=1e-6)
    np.testing.assert_allclose(to_numpy(layer(inputs, start_index=int_tensor(-2)))[0], table[[0, 0, 0]], rtol=1e-6)


def test_more_queries_than_keys_stand_before_the_learned_table_unless_they_begin_at_its_start():
    inputs = random_array((1, 5, 6), 1)
    attention = layers.MultiHeadAttention(2, 3, positions=LearnedPositions(7))
    attention.build(inputs.shape, inputs.shape)
    randomize(attention)
    equal = np.repeat(inputs[:, :1], 5, axis=1)
    # Places −2 … 2: the first three have the first row of the table, and equal queries equal outputs.
    output = to_numpy(attention(equal, inputs[:, :3]))[0]
    np.testing.assert_allclose(output[1:3], output[[0, 0]], atol=1e-6)
    assert np.abs(output[3] - output[2]).max() > 1e-3
    output = to_numpy(attention(equal, inputs[:, :3], start_index=0))[0]
    assert all(np.abs(output[t + 1] - output[t]).max() > 1e-3 for t in range(4))


def test_sinusoids_and_rotations_go_on_before_the_start():
    inputs, heads = np.zeros((1, 5, 22), "float32"), random_array((1, 1, 5, 8), 1)
    np.testing.assert_allclose(
        to_numpy(SinusoidalPositions()(inputs, start_index=-3))[0], sinusoids(5, 22, start=-3), atol=1e-6
    )
    turned = to_numpy(RotaryPositions()(heads, start_index=-3))
    for t in range(5):
        np.testing.assert_allclose(turned[0, 0, t], rotate(heads[0, 0, t], t - 3, 8, 10000.0), atol=1e-6)


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="PyTorch knows no length beforehand")
def test_a_known_excess_over_the_learned_table_is_an_error():
    layer = LearnedPositions(7)
    assert layer(np.zeros((2, 5, 4), "float32"), start_index=2).shape == (2, 5, 4)
    with pytest.raises(ValueError, match=r"max_length.*8.*7.*3.*\(2, 5, 4\)"):
        layer(np.zeros((2, 5, 4), "float32"), start_index=3)


def test_base_class_says_what_to_override():
    with pytest.raises(NotImplementedError, match="AbsolutePositions.*encodings"):
        AbsolutePositions().encodings(None, 2)
