"""States in float32 or wider, also in caches."""

import contextlib
import contextvars

from keras import backend, ops

_INTEGER_DTYPES = {"float32": "int32", "float64": "int64"}
_as_floats = contextvars.ContextVar("states_as_floats", default=False)


@contextlib.contextmanager
def states_as_floats():
    """Returns a context in which caches contain states themselves and not their bits, for formats without bit casts."""
    token = _as_floats.set(True)
    try:
        yield
    finally:
        _as_floats.reset(token)


class WideState:
    """Mixin of layers that sum over positions in float32 or wider, whatever their compute dtype.

    Keras casts floating point arguments to the compute dtype of a layer, and of each layer that contains it. A cache
    therefore contains the bits of a state as integers.
    """

    @property
    def wide_dtype(self):
        """Dtype of all sums: float32 or wider."""
        return backend.result_type(self.compute_dtype, "float32")

    @property
    def stored_dtype(self):
        """Dtype of states in caches."""
        return self.wide_dtype if _as_floats.get() else _INTEGER_DTYPES[self.wide_dtype]

    def widen(self, *tensors):
        """Returns a list of the tensors in `wide_dtype`."""
        return [ops.cast(tensor, self.wide_dtype) for tensor in tensors]

    def to_stored(self, state):
        """Returns a state as a cache contains it."""
        return state if _as_floats.get() else ops.view(state, self.stored_dtype)

    def from_stored(self, stored):
        """Returns a state from a cache."""
        return stored if _as_floats.get() else ops.view(stored, self.wide_dtype)

    def stored_zeros(self, shape):
        """Returns a state of zeros as a cache contains it."""
        return ops.zeros(shape, dtype=self.stored_dtype)
