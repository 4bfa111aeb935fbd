"""The most probable tokens and their probabilities."""

import keras
import numpy as np
from keras import ops

from zoo.decoding import top_k as selection


def test_the_largest_by_groups_are_the_largest():
    for size in (6000, 512, 97, 8):
        logits = np.random.default_rng(5).normal(size=(4, size)).astype("float32")
        if keras.backend.backend() != "torch":  # which promises no order
            logits[1, [3, size // 2, size - 1]] = 7.0  # of equal numbers the first comes first
        values, places = map(ops.convert_to_numpy, selection.top_k(ops.convert_to_tensor(logits), 5))
        expected = np.argsort(-logits, axis=-1, kind="stable")[:, :5]
        np.testing.assert_array_equal(places, expected)
        np.testing.assert_array_equal(values, np.take_along_axis(logits, expected, -1))
        values, places = map(ops.convert_to_numpy, selection.argmax(ops.convert_to_tensor(logits)))
        np.testing.assert_array_equal(places, logits.argmax(axis=-1))
        np.testing.assert_array_equal(values, logits.max(axis=-1, keepdims=True))


def test_log_sum_exp_of_large_and_small_logits():
    logits = np.array([[100.0, 99.0, -1e30], [-200.0, -1e30, -201.0]], "float32")
    found = selection.log_sum_exp(ops.convert_to_tensor(logits), ops.convert_to_tensor(logits[:, 0]))
    expected = np.log1p(np.exp(-1.0)) + logits[:, 0]
    np.testing.assert_allclose(ops.convert_to_numpy(found), expected, rtol=1e-6)
