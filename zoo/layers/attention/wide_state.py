"""States in float32 or wider, which a cache contains as integers."""

from keras import backend, ops

_INTEGER_DTYPES = {"float32": "int32", "float64": "int64"}


class WideState:
    """Mixin of layers that sum over positions in float32 or wider, whatever their compute dtype.

    Keras casts the floats among a layer's arguments to its compute dtype. A cache therefore contains the bits of a
    state as integers.
    """

    @property
    def wide_dtype(self):
        """Dtype of all sums: float32 or wider."""
        return backend.result_type(self.compute_dtype, "float32")

    def widen(self, *tensors):
        """Returns a list of the tensors in `wide_dtype`."""
        return [ops.cast(tensor, self.wide_dtype) for tensor in tensors]

    def state_to_bits(self, state):
        """Returns the bits of a state as integers."""
        return ops.view(state, _INTEGER_DTYPES[self.wide_dtype])

    def bits_to_state(self, bits):
        """Returns the state of these bits."""
        return ops.view(bits, self.wide_dtype)

    def zero_bits(self, shape):
        """Returns the bits of a state of zeros."""
        return ops.zeros(shape, dtype=_INTEGER_DTYPES[self.wide_dtype])
