"""Nonlinearities that Keras does not have by name."""

import math

import keras
import numpy as np
import pytest
from keras import ops

from zoo.layers import FeedForward
from zoo.layers.core.feed_forward import gelu_tanh, get_activation


def test_gelu_tanh():
    inputs = [-3.0, -0.7, 0.0, 0.2, 1.9]
    expected = [x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) for x in inputs]
    outputs = ops.convert_to_numpy(gelu_tanh(ops.convert_to_tensor(inputs, "float32")))
    np.testing.assert_allclose(outputs, expected, atol=1e-6)
    assert get_activation("gelu_tanh") is gelu_tanh and get_activation("relu") is keras.activations.relu
    assert FeedForward.from_config(FeedForward(5, activation="gelu_tanh").get_config()).activation is gelu_tanh
    with pytest.raises(ValueError, match="snake"):
        get_activation("snake")
