"""`zoo.reach` and `zoo.draw_reach`: beside finite differences, and what is out of reach."""

import keras
import numpy as np
from support.every import assert_refused
from support.layers.contract import random_array, to_numpy

import zoo
from zoo import layers

X = random_array((7, 3), 0)


def by_differences(layer, x, step=1e-2):
    """Returns the norm of the change of the last output by each position, from two rows for each number."""
    changes = step * np.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
    rows = np.concatenate([x + changes, x - changes])
    above, below = np.split(to_numpy(layer(*[rows] * _inputs(layer)))[:, -1], 2)
    squares = np.sum(((above - below) / (2 * step)) ** 2, axis=-1)
    return np.sqrt(squares.reshape(x.shape).sum(axis=-1))


def _inputs(layer):
    return 2 if isinstance(layer, layers.BaseAttention) else 1


def test_norms_of_derivatives():
    for layer in (
        keras.layers.GRU(5, return_sequences=True),
        layers.MultiHeadAttention(num_heads=2, key_dim=5),
        layers.ScaledDotProductAttention(),
    ):
        reached = zoo.reach(layer, X)
        np.testing.assert_allclose(reached, by_differences(layer, X), rtol=5e-3, atol=2e-4)
        assert reached.shape == (7,) and reached.dtype == np.float64


def test_a_recurrence_forgets_and_attention_does_not():
    x = random_array((101, 11), 1)
    gru = zoo.reach(keras.layers.GRU(11, return_sequences=True), x)
    attention = zoo.reach(layers.MultiHeadAttention(num_heads=1, key_dim=11), x)
    assert gru[0] < 1e-10 * gru[-1] and attention[0] > 1e-4 * attention[-1]


def test_picture():
    convolution = keras.layers.Conv1D(5, kernel_size=3, padding="causal")
    attention = layers.SelfAttention(units=5)
    figure = zoo.draw_reach({"convolution": convolution, "attention": attention}, X)
    (axes,) = figure.axes
    near, far = (np.asarray(line.get_ydata()) for line in axes.lines)
    np.testing.assert_allclose(far, zoo.reach(attention, X)[::-1])
    assert np.isfinite(near).tolist() == [True] * 3 + [False] * 4
    assert axes.get_yscale() == "log" and [line.get_label() for line in axes.lines] == ["convolution", "attention"]


def test_errors():
    layer = keras.layers.Dense(5)
    assert_refused(
        [
            (lambda: zoo.reach(len, X), "layer.*len"),
            (lambda: zoo.reach(layer, X[None]), r"inputs.*\(1, 7, 3\)"),
            (lambda: zoo.reach(layer, X[:0]), r"inputs.*\(0, 3\)"),
            (lambda: zoo.reach(keras.layers.GRU(5), X), r"return_sequences.*GRU.*\(1, 5\)"),
            (lambda: zoo.draw_reach({}, X), r"layers.*\{\}"),
            (lambda: zoo.draw_reach(layer, X), "layers.*Dense"),
        ]
    )
