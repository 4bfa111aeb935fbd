"""Numbers as if drawn at random, the same on every backend and in every graph."""

from keras import ops


def _logical_right_shift(x, bits):
    return ops.bitwise_and(ops.right_shift(x, bits), (1 << (32 - bits)) - 1)


def _mix(x):
    """Returns well-mixed bits of int32 numbers: two rounds of shift, xor and multiply with odd constants."""
    for bits, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        x = ops.bitwise_xor(x, _logical_right_shift(x, bits)) * factor
    return ops.bitwise_xor(x, _logical_right_shift(x, 15))


def uniform(*numbers):
    """Returns a number in [0, 1) that depends on the given ones alone, as if drawn at random.

    Args:
        *numbers: int32 numbers or tensors that broadcast.
    """
    state = ops.convert_to_tensor(0, "int32")
    for number in numbers:
        state = _mix(ops.bitwise_xor(state, ops.cast(number, "int32")) + 0x1E3779B9)
    return ops.cast(_logical_right_shift(state, 8), "float32") / (1 << 24)
