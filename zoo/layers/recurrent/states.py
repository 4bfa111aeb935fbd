"""States of recurrent cells: their sizes, the step counter, and initial states in functional models."""

import keras
from keras import ops

from zoo.layers.core.base import SavesOptions, serialize_shared

# Recurrent layers cast states to the compute dtype, and bfloat16 is exact only up to 256: a counter has two digits.
BASE = 256


def state_sizes(cell):
    """Returns a list of the sizes of a cell's states."""
    size = cell.state_size
    return list(size) if isinstance(size, (list, tuple)) else [size]


def split_states(cells, states):
    """Returns a list of states for each cell of a stack, from a flat list."""
    states, by_cell = list(states), []
    for cell in cells:
        count = len(state_sizes(cell))
        by_cell.append(states[:count])
        states = states[count:]
    return by_cell


def step_number(counters):
    """Returns the number of the step, an int32 scalar, from counters [B, 2]."""
    digits = ops.cast(counters, "int32")
    # In Keras' `RNN`, masked rows do not count steps; the others contain the number of the step.
    numbers = digits[:, 0] + BASE * digits[:, 1]
    return ops.sum(numbers) if 0 in numbers.shape else ops.max(numbers)


def next_step(counters):
    """Returns the counters [B, 2] of the next step."""
    low = counters[:, 0] + 1
    carry = ops.cast(low >= BASE, counters.dtype)
    return ops.stack([low * (1 - carry), counters[:, 1] + carry], axis=-1)


@keras.saving.register_keras_serializable(package="attention_zoo")
class _InitialStates(SavesOptions):
    """A cell's `initial_states` in a functional model: a layer, so that the model contains the cell's weights.

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
