"""The loop over chunks of rows by itself; what it does for attention is for test_execution.py."""

import keras
import numpy as np
from keras import ops
from support.layers.contract import gradients, to_numpy

from zoo.layers.core.loops import checkpointed_map


def _scale(rows, shared, index):
    return (rows["row"] * shared["scale"],)


def test_rows_are_worked_out_in_order():
    rows = np.arange(35, dtype="float32").reshape(1, 5, 7)
    for size in (1, 2, 5, 7):
        (result,) = checkpointed_map(
            _scale, {"row": ops.convert_to_tensor(rows)}, {"scale": 3.0 * ops.ones((7,))}, [], 1, "float32", size
        )
        np.testing.assert_array_equal(to_numpy(result), 3 * rows)


def test_gradients_of_what_chunks_share_are_added_in_float32():
    dtype = "bfloat16"  # in which 1 more than 256 is 256
    rows = np.array([1.0] * 16 + [256.0] + [1.0] * 16)[:, None]
    rows, scale = {"row": ops.cast(rows, dtype)}, keras.Variable(np.ones((1,)), dtype=dtype)

    def loss():
        (result,) = checkpointed_map(_scale, rows, {"scale": ops.convert_to_tensor(scale)}, [], 1, dtype, 1)
        return ops.sum(ops.cast(result, "float32"))

    (gradient,) = gradients(loss, [scale])
    assert float(to_numpy(gradient)[0]) == 288
