"""States of recurrent cells: their sizes, a counter of steps among them, and their creation in functional models."""

import keras
from keras import ops

from zoo.layers.core.base import SavesOptions, serialize_shared

# Recurrent layers cast states to the compute dtype, and bfloat16 counts exactly only up to 256: hence two digits.
BASE = 256


def state_sizes(cell):
    """Returns the sizes of the states of a cell, a list."""
    size = cell.state_size
    return list(size) if isinstance(size, (list, tuple)) else [size]


def split_states(cells, states):
    """Returns the states of each cell of a stack, a list of lists, from all of them."""
    states, by_cell = list(states), []
    for cell in cells:
        count = len(state_sizes(cell))
        by_cell.append(states[:count])
        states = states[count:]
    return by_cell


def step_number(counters):
    """Returns the number of the step, an int32 scalar, from counters [B, 2]."""
    digits = ops.cast(counters, "int32")
    # Rows whose steps are masked do not count; the others have the number of the step.
    numbers = digits[:, 0] + BASE * digits[:, 1]
    return ops.sum(numbers) if 0 in numbers.shape else ops.max(numbers)


def next_step(counters):
    """Returns the counters [B, 2] of the next step."""
    low = counters[:, 0] + 1
    carry = ops.cast(low >= BASE, counters.dtype)
    return ops.stack([low * (1 - carry), counters[:, 1] + carry], axis=-1)


@keras.saving.register_keras_serializable(package="attention_zoo")
class _InitialStates(SavesOptions):
    """A cell's `initial_states` in a functional model: a layer, so that the model holds the weights of the cell.

    Args:
        cell: The cell.
    """

    saved_options = ("cell",)

    def __init__(self, cell, **kwargs):
        super().__init__(**{"dtype": cell.dtype_policy, **kwargs})
        self.supports_masking = True
        self.cell = cell

    def call(self, inputs):
        return self.cell.initial_states(**inputs)

    def compute_mask(self, inputs, mask=None):
        """Returns no mask: states have no padding."""
        return None

    def get_config(self):
        return {**super().get_config(), "cell": serialize_shared(self.cell)}
