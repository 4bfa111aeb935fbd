"""Cases of the contract: recurrent attention."""

import keras
from contract import Case

from zoo import layers

_RECURRENT = {
    "output": (2, 3, 7 + 13),
    "hides": {"memory_mask": ("memory",)},
    "part": lambda layer: layer.cell,
}


@keras.saving.register_keras_serializable(package="attention_zoo_tests")
class Decoder(keras.layers.Layer):
    """`RecurrentAttentionCell` in `keras.layers.RNN`, with memory and states as arguments like any other layer's."""

    def __init__(self, cell, **kwargs):
        super().__init__(**kwargs)
        self.cell = cell
        self.rnn = keras.layers.RNN(cell, return_sequences=True, dtype=self.dtype_policy)

    def build(self, inputs_shape, memory_shape, state_shape, carry_shape=None):
        self.rnn.build(inputs_shape)

    def call(self, inputs, memory, state, carry=None, memory_mask=None, training=None):
        inner = [state] if carry is None else [state, carry]
        states = self.cell.initial_states(memory, memory_mask, inner)
        return self.rnn(inputs, initial_state=states, training=training)

    def get_config(self):
        return {**super().get_config(), "cell": keras.saving.serialize_keras_object(self.cell)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "cell": keras.saving.deserialize_keras_object(config["cell"])})


def _recurrent(cell_class, policy):
    inner = cell_class(7, dtype=policy)
    attention = layers.AdditiveAttention(31, dtype=policy)
    return Decoder(layers.RecurrentAttentionCell(inner, attention, memory_dim=13, dtype=policy), dtype=policy)


CASES = [
    Case(
        "recurrent_attention_cell_gru",
        layers.RecurrentAttentionCell,
        lambda policy: _recurrent(keras.layers.GRUCell, policy),
        {"inputs": (2, 3, 11), "memory": (2, 5, 13), "state": (2, 7)},
        parameters=3 * 7 * (11 + 13 + 7 + 2) + 31 * (7 + 1 + 13 + 1),
        **_RECURRENT,
    ),
    Case(
        "recurrent_attention_cell_lstm",
        layers.RecurrentAttentionCell,
        lambda policy: _recurrent(keras.layers.LSTMCell, policy),
        {"inputs": (2, 3, 11), "memory": (2, 5, 13), "state": (2, 7), "carry": (2, 7)},
        parameters=4 * 7 * (11 + 13 + 7 + 1) + 31 * (7 + 1 + 13 + 1),
        **_RECURRENT,
    ),
]
