"""Positions that the caller gives: packed texts, each of which counts from 0."""

import functools

import keras
import numpy as np
import pytest
from keras import ops
from support.every import assert_refused
from support.layers.contract import compiled, random_array, randomize, to_numpy

from zoo import layers

# Two texts in the first row, of 3 and 4 tokens, and one in the second.
PACKED = np.array([[0, 1, 2, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6]], "int32")
KINDS = {
    "sinusoidal": lambda: layers.SinusoidalPositions(),
    "concatenated": lambda: layers.SinusoidalPositions(concatenate=True, size=4),
    "learned": lambda: layers.LearnedPositions(11),
    "integer": lambda: layers.IntegerPositions(),
    "rotary": lambda: layers.RotaryPositions(fraction=0.5),
    "half_split": lambda: layers.RotaryPositions(layout="half_split"),
}
every_kind = pytest.mark.parametrize("name", KINDS)


def _built(name):
    layer = KINDS[name]()
    shape = (2, 3, 7, 6) if isinstance(layer, layers.RotaryPositions) else (2, 7, 6)
    layer.build(shape)
    return randomize(layer), random_array(shape, 1)


@every_kind
def test_packed_texts_are_as_texts_by_themselves(name):
    layer, inputs = _built(name)
    output = to_numpy(layer(inputs, positions=PACKED))
    for row, text in ((0, slice(0, 3)), (0, slice(3, 7)), (1, slice(0, 7))):
        alone = to_numpy(layer(inputs[row : row + 1, ..., text, :]))
        np.testing.assert_allclose(output[row : row + 1, ..., text, :], alone, atol=1e-6)
    tokens = keras.Input(inputs.shape[1:-2] + (None, 6)), keras.Input((None,), dtype="int32")
    model = keras.Model(tokens, layer(tokens[0], positions=tokens[1]))
    np.testing.assert_allclose(to_numpy(model([inputs, PACKED])), output, atol=2e-6)
    # Positions of all rows.
    found = to_numpy(layer(inputs, positions=PACKED[0]))
    np.testing.assert_allclose(found, to_numpy(layer(inputs, positions=np.stack([PACKED[0]] * 2))), atol=1e-6)
    found = to_numpy(layer(inputs, positions=np.arange(3, 10)))
    np.testing.assert_allclose(found, to_numpy(layer(inputs, start_index=3)), atol=2e-6)


def test_in_a_graph():
    for name in ("sinusoidal", "rotary"):
        layer, inputs = _built(name)
        in_graph = compiled(lambda inputs, positions, layer=layer: layer(inputs, positions=positions), False)
        expected = to_numpy(layer(inputs, positions=PACKED))
        np.testing.assert_allclose(to_numpy(in_graph(ops.convert_to_tensor(inputs), PACKED)), expected, atol=2e-6)


WRONG = [
    ({"positions": PACKED, "start_index": 2}, "positions.*start_index.*2"),
    ({"positions": PACKED.astype("float32")}, "positions.*float32"),
    ({"positions": PACKED[:, :5]}, r"positions.*7.*\(2, 5\)"),
    ({"positions": PACKED[None]}, r"positions.*7.*\(1, 2, 7\)"),
]


def test_errors():
    for name in ("sinusoidal", "rotary"):
        layer, inputs = _built(name)
        assert_refused([(functools.partial(layer, inputs, **options), pattern) for options, pattern in WRONG])
