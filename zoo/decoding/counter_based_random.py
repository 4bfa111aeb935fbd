"""Counter-based random numbers: a hash of integers, the same on every backend and in every graph."""

from typing import Any

from keras import ops


def _logical_right_shift(x: Any, bits: int) -> Any:
    return ops.bitwise_and(ops.right_shift(x, bits), (1 << (32 - bits)) - 1)


def _mix(x: Any) -> Any:
    """Returns int32 numbers with well-mixed bits: two rounds of shift, xor and multiplication by odd constants."""
    for bits, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        x = ops.bitwise_xor(x, _logical_right_shift(x, bits)) * factor
    return ops.bitwise_xor(x, _logical_right_shift(x, 15))


def uniform(*counters: Any) -> Any:
    """Returns a pseudorandom number in [0, 1) that depends only on counters, int32 tensors that broadcast."""
    state = ops.convert_to_tensor(0, "int32")
    for counter in counters:
        state = _mix(ops.bitwise_xor(state, ops.cast(counter, "int32")) + 0x1E3779B9)
    return ops.cast(_logical_right_shift(state, 8), "float32") / (1 << 24)
