"""The loop over chunks of rows by itself; what it does for attention is for test_implementations.py."""

import keras
import numpy as np
import pytest
from keras import ops
from support.layers.contract import gradients, to_numpy

from zoo.layers.core.kernels import checkpointed_map


def _scale(rows, shared, index):
    return (rows["row"] * shared["scale"],)


@pytest.mark.parametrize("size", [1, 2, 5, 7])
def test_rows_are_worked_out_in_order(size):
    rows = np.arange(35, dtype="float32").reshape(1, 5, 7)
    (result,) = checkpointed_map(
        _scale, {"row": ops.convert_to_tensor(rows)}, {"scale": 3.0 * ops.ones((7,))}, [], 1, "float32", size
    )
    np.testing.assert_array_equal(to_numpy(result), 3 * rows)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_gradients_of_what_chunks_share_are_added_in_float32(dtype):
    # Half as precise, 1 more than 2064 is 2064; whichever end the sum begins at, ones come behind the large number.
    rows = np.array([1.0] * 16 + [2048.0] + [1.0] * 16)[:, None]
    rows, scale = {"row": ops.cast(rows, dtype)}, keras.Variable(np.ones((1,)), dtype=dtype)

    def loss():
        (result,) = checkpointed_map(_scale, rows, {"scale": ops.convert_to_tensor(scale)}, [], 1, dtype, 1)
        return ops.sum(ops.cast(result, "float32"))

    (gradient,) = gradients(loss, [scale])
    assert float(to_numpy(gradient)[0]) == 2080
