"""Weights as an export holds them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from export.graph.weights import store_weights


@pytest.mark.parametrize(
    ("kind", "bytes_each", "tolerance"), [("float32", 4, 0.0), ("bfloat16", 2, 2**-8), ("int8", 1, 2**-6)]
)
def test_a_matrix_takes_less_room_and_is_read_from_there(kind, bytes_each, tolerance):
    model = keras.Sequential([keras.Input([96]), keras.layers.Dense(128, use_bias=False)])
    inputs = np.eye(96, dtype="float32")
    expected = model(inputs).numpy()
    (held, *scales), reading = store_weights(model, kind)
    assert held.dtype.size == bytes_each and held.shape == (96, 128)
    assert [scale.shape.num_elements() for scale in scales] == ([128] if kind == "int8" else [])
    with reading():
        np.testing.assert_allclose(model(inputs), expected, rtol=0, atol=tolerance * np.abs(expected).max())
    held.assign(tf.zeros_like(held))
    with reading():
        assert not np.any(model(inputs))
