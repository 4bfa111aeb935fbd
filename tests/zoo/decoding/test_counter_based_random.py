"""Counter-based random numbers."""

import numpy as np
from keras import ops

from zoo.decoding import uniform


def test_uniform_numbers_are_uniform_and_independent():
    numbers = np.stack([ops.convert_to_numpy(uniform(7, ops.arange(4000, dtype="int32"), step)) for step in range(8)])
    assert numbers.dtype == np.float32 and numbers.min() >= 0 and numbers.max() < 1
    np.testing.assert_allclose(np.histogram(numbers, 10, (0, 1))[0] / numbers.size, 0.1, atol=0.007)
    for neighbours in ((numbers[:-1], numbers[1:]), (numbers[:, :-1], numbers[:, 1:])):
        assert abs(np.corrcoef(*map(np.ravel, neighbours))[0, 1]) < 0.025
    # The same on every backend and machine.
    np.testing.assert_array_equal(numbers[:2, 0], np.float32([0.18210852, 0.49797022]))
