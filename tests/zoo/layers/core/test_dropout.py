"""Dropout with few random bits: rate, scale, gradient and seeds."""

import keras
import numpy as np
import pytest
from keras import ops

from zoo.layers.core.dropout import Dropout

SHAPE = (101, 33, 7)
EVEN = (101, 33, 14)


@pytest.mark.parametrize("shape", [SHAPE, EVEN])
def test_rate_and_scale(shape):
    for rate, dtype in ((0.1, "float32"), (0.35, "float32"), (0.5, "bfloat16"), (0.9, "bfloat16")):
        dropped = Dropout(rate, seed=3, dtype=dtype)(ops.ones(shape), training=True)
        found = ops.convert_to_numpy(ops.cast(dropped, "float32"))
        share = np.mean(found == 0)
        assert abs(share - rate) < 5 * np.sqrt(rate * (1 - rate) / found.size)
        np.testing.assert_allclose(found[found != 0], 1 / (1 - rate), rtol=1e-4 if dtype == "float32" else 2**-7)


def test_nothing_is_dropped_outside_of_training():
    inputs = np.random.default_rng(0).normal(size=SHAPE).astype("float32")
    np.testing.assert_array_equal(ops.convert_to_numpy(Dropout(0.5)(inputs)), inputs)
    np.testing.assert_array_equal(ops.convert_to_numpy(Dropout(0.0)(inputs, training=True)), inputs)
    np.testing.assert_array_equal(ops.convert_to_numpy(Dropout(1.0)(inputs, training=True)), np.zeros(SHAPE))


@pytest.mark.parametrize("shape", [SHAPE, EVEN])
def test_each_call_draws_anew_and_the_seed_decides(shape):
    one, other = (Dropout(0.5, seed=7) for _ in range(2))
    first, second = (ops.convert_to_numpy(one(ops.ones(shape), training=True)) for _ in range(2))
    assert 0.4 < np.mean(first == second) < 0.6
    np.testing.assert_array_equal(first, ops.convert_to_numpy(other(ops.ones(shape), training=True)))
    others = ops.convert_to_numpy(Dropout(0.5, seed=8)(ops.ones(shape), training=True))
    assert 0.4 < np.mean(first == others) < 0.6


def test_neighbours_are_independent():
    """Two of them come from one draw of 32 bits."""
    zero = ops.convert_to_numpy(Dropout(0.5, seed=1)(ops.ones((100_000, 2)), training=True)) == 0
    assert abs(np.corrcoef(zero[:, 0], zero[:, 1])[0, 1]) < 5 / np.sqrt(len(zero))
    assert abs(np.corrcoef(zero[1:, 0], zero[:-1, 0])[0, 1]) < 5 / np.sqrt(len(zero))


def test_a_whole_row_with_noise_shape():
    found = ops.convert_to_numpy(Dropout(0.5, noise_shape=(100, 1), seed=1)(ops.ones((100, 8)), training=True))
    assert set(found.sum(axis=1).tolist()) == {0.0, 16.0}


def test_gradients_pass_where_values_did_with_unknown_sizes():
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("of TensorFlow's graphs")
    layer = Dropout(0.3, seed=2)

    @tf.function(input_signature=[tf.TensorSpec((None, None), "float32")])
    def run(inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs, training=True)
        return outputs, tape.gradient(outputs, inputs)

    for shape in [(5, 3), (1, 1), (0, 4)]:
        outputs, gradients = run(tf.ones(shape))
        assert outputs.shape == shape
        np.testing.assert_array_equal(outputs, gradients)
    compiled = tf.function(lambda inputs: layer(inputs, training=True), jit_compile=True)
    assert 0.2 < np.mean(compiled(tf.ones((40, 50))) == 0) < 0.4
