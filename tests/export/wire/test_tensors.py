"""Arrays to and from messages, as TensorFlow itself does it."""

import numpy as np
import pytest
import tensorflow as tf

from export.wire import tensors

FLOATS, WHOLE = (
    ("float16", "float32", "float64"),
    [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)],
)


def test_tensors_agree_with_tensorflow():
    for dtype in (*FLOATS, *WHOLE, "bool"):
        array = np.array([[0, 1, 3], [7, 11, 127]]).astype(dtype)
        np.testing.assert_array_equal(tf.make_ndarray(tensors.to_proto(array)), array)
        decoded = tensors.to_array(tf.make_tensor_proto(array))
        np.testing.assert_array_equal(decoded, array)
        assert decoded.dtype == array.dtype


def test_tensors_of_strings_and_their_errors():
    array = np.array([["a", "ß"], [b"\xff", ""]], object)
    proto = tensors.to_proto(array)
    np.testing.assert_array_equal(tf.make_ndarray(proto), [[b"a", "ß".encode()], [b"\xff", b""]])
    with pytest.raises(ValueError, match="complex64"):
        tensors.to_proto(np.zeros(2, np.complex64))
    with pytest.raises(ValueError, match="complex64"):
        tensors.to_array(tf.make_tensor_proto(np.zeros(2, np.complex64)))
    proto.tensor_shape.unknown_rank = True
    with pytest.raises(ValueError, match="shape"):
        tensors.to_array(proto)
