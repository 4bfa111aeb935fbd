"""Cases of the contract: recurrent attention and recurrent encoders."""

import keras
from support.layers.contract import DROPOUT, FLAT, Case

from zoo import layers

_RECURRENT = {"hides": {"memory_mask": ("memory",)}, "part": lambda layer: layer.cell}
_DECODER = {
    "inputs": {"inputs": (2, 3, 11), "memory": (2, 5, 13)},
    "hides": {"mask": ("inputs",), "memory_mask": ("memory",)},
}
_ENCODER = {"inputs": {"inputs": (2, 5, 11)}, "output": (2, 5, 14), "hides": {"mask": ("inputs",)}}


@keras.saving.register_keras_serializable(package="attention_zoo_tests")
class Decoder(keras.layers.Layer):
    """A recurrent attention cell in `keras.layers.RNN`, with memory and states as arguments like any other layer's."""

    def __init__(self, cell, **kwargs):
        super().__init__(**kwargs)
        self.cell = cell
        self.rnn = keras.layers.RNN(cell, return_sequences=True, dtype=self.dtype_policy)

    def build(self, inputs_shape, memory_shape, state_shape, state2_shape=None, state3_shape=None):
        self.rnn.build(inputs_shape)

    def call(self, inputs, memory, state, state2=None, state3=None, memory_mask=None, training=None):
        inner = [each for each in (state, state2, state3) if each is not None]
        states = self.cell.initial_states(memory, memory_mask, inner)
        return self.rnn(inputs, initial_state=states, training=training)

    def get_config(self):
        return {**super().get_config(), "cell": keras.saving.serialize_keras_object(self.cell)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "cell": keras.saving.deserialize_keras_object(config["cell"])})


def _inputs(*states):
    names = ("state", "state2", "state3")
    return {
        "inputs": (2, 3, 11),
        "memory": (2, 5, 13),
        **{name: (2, size) for name, size in zip(names, states, strict=False)},
    }


def _cell(cell_class, policy, inner, attention=None, **options):
    attention = attention or layers.AdditiveAttention(31, dtype=policy)
    return cell_class(inner, attention, memory_dim=13, dtype=policy, **options)


def _in_loop(cell_class, policy, inner, **options):
    return Decoder(_cell(cell_class, policy, inner, **options), dtype=policy)


def _covering(policy, max_fertility=None):
    score = layers.CoverageScore(31, max_fertility=max_fertility, dtype=policy)
    return layers.Attention(score, dtype=policy)


def _stack(policy):
    return [keras.layers.GRUCell(19, dtype=policy), keras.layers.LSTMCell(7, dtype=policy)]


def _deep(policy):
    return layers.DeepTransitionCell(keras.layers.GRUCell(7, dtype=policy), num_transitions=2, dtype=policy)


def _transition(units):
    return 3 * units * (units + 1)


def _gru(units, inputs):
    return 3 * units * (inputs + units + 2)


def _lstm(units, inputs):
    return 4 * units * (inputs + units + 1)


_ADDITIVE = 31 * (7 + 1 + 13 + 1)
_MULTI_HEAD = 7 * 19 * (8 + 14 + 14) + (7 * 19 + 1) * 7

CASES = [
    Case(
        "recurrent_attention_cell_gru",
        layers.RecurrentAttentionCell,
        lambda policy: _in_loop(layers.RecurrentAttentionCell, policy, keras.layers.GRUCell(7, dtype=policy)),
        _inputs(7),
        (2, 3, 7 + 13),
        _gru(7, 11 + 13) + _ADDITIVE,
        **_RECURRENT,
    ),
    Case(
        "recurrent_attention_cell_lstm",
        layers.RecurrentAttentionCell,
        lambda policy: _in_loop(
            layers.RecurrentAttentionCell, policy, keras.layers.LSTMCell(7, dtype=policy), readout_state="new"
        ),
        _inputs(7, 7),
        (2, 3, 7 + 13),
        _lstm(7, 11 + 13) + _ADDITIVE,
        **_RECURRENT,
    ),
    Case(
        "recurrent_attention_cell_stack",
        layers.RecurrentAttentionCell,
        lambda policy: _in_loop(layers.RecurrentAttentionCell, policy, _stack(policy), return_attention_scores=True),
        _inputs(19, 7, 7),
        (2, 3, 7 + 13 + 5),
        _gru(19, 11 + 13) + _lstm(7, 19) + _ADDITIVE,
        **_RECURRENT,
    ),
    Case(
        "recurrent_attention_cell_deep",
        layers.RecurrentAttentionCell,
        lambda policy: _in_loop(layers.RecurrentAttentionCell, policy, _deep(policy)),
        _inputs(7),
        (2, 3, 7 + 13),
        _gru(7, 11 + 13) + 2 * _transition(7) + _ADDITIVE,
        **_RECURRENT,
    ),
    Case(
        "conditional_attention_cell",
        layers.ConditionalAttentionCell,
        lambda policy: _in_loop(
            layers.ConditionalAttentionCell,
            policy,
            keras.layers.GRUCell(7, dtype=policy),
            context_cell=_deep(policy),
            return_attention_scores=True,
        ),
        _inputs(7),
        (2, 3, 7 + 13 + 5),
        _gru(7, 11) + _gru(7, 13) + 2 * _transition(7) + _ADDITIVE,
        **_RECURRENT,
    ),
    Case(
        "conditional_attention_cell_stack",
        layers.ConditionalAttentionCell,
        lambda policy: _in_loop(
            layers.ConditionalAttentionCell,
            policy,
            [keras.layers.LSTMCell(5, dtype=policy), keras.layers.GRUCell(7, dtype=policy)],
            context_cell=keras.layers.GRUCell(7, dtype=policy),
            readout_state="previous",
        ),
        _inputs(5, 5, 7),
        (2, 3, 7 + 13),
        _lstm(5, 11) + _gru(7, 5) + _gru(7, 13) + _ADDITIVE,
        **_RECURRENT,
    ),
    Case(
        "luong_attention_cell_gru",
        layers.LuongAttentionCell,
        lambda policy: _in_loop(layers.LuongAttentionCell, policy, keras.layers.GRUCell(7, dtype=policy)),
        _inputs(7),
        (2, 3, 7),
        _gru(7, 11 + 7) + _ADDITIVE + (13 + 7) * 7,
        **_RECURRENT,
    ),
    Case(
        "luong_attention_cell_stack",
        layers.LuongAttentionCell,
        lambda policy: _in_loop(
            layers.LuongAttentionCell, policy, _stack(policy), return_attention_scores=True, attentional_dim=23
        ),
        _inputs(19, 7, 7),
        (2, 3, 23 + 5),
        _gru(19, 11 + 23) + _lstm(7, 19) + _ADDITIVE + (13 + 7) * 23,
        **_RECURRENT,
    ),
    Case(
        "luong_attention_cell_without_input_feeding",
        layers.LuongAttentionCell,
        lambda policy: _in_loop(
            layers.LuongAttentionCell, policy, keras.layers.LSTMCell(7, dtype=policy), input_feeding=False
        ),
        _inputs(7, 7),
        (2, 3, 7),
        _lstm(7, 11) + _ADDITIVE + (13 + 7) * 7,
        **_RECURRENT,
    ),
    Case(
        "recurrent_attention_cell_with_coverage",
        layers.RecurrentAttentionCell,
        lambda policy: _in_loop(
            layers.RecurrentAttentionCell, policy, keras.layers.GRUCell(7, dtype=policy), attention=_covering(policy, 2)
        ),
        _inputs(7),
        (2, 3, 7 + 13),
        _gru(7, 11 + 13) + _ADDITIVE + 31 + 13,
        **_RECURRENT,
    ),
    Case(
        "luong_attention_cell_with_coverage",
        layers.LuongAttentionCell,
        lambda policy: _in_loop(
            layers.LuongAttentionCell,
            policy,
            _stack(policy),
            attention=_covering(policy),
            return_attention_scores=True,
        ),
        _inputs(19, 7, 7),
        (2, 3, 7 + 5),
        _gru(19, 11 + 7) + _lstm(7, 19) + _ADDITIVE + 31 + (13 + 7) * 7,
        **_RECURRENT,
    ),
    Case(
        "luong_attention_cell_monotonic",
        layers.LuongAttentionCell,
        lambda policy: _in_loop(
            layers.LuongAttentionCell,
            policy,
            keras.layers.GRUCell(7, dtype=policy),
            attention=layers.MonotonicAttention("general", noise=0, hard=False, dtype=policy),
            return_attention_scores=True,
        ),
        _inputs(7),
        (2, 3, 7 + 5),
        _gru(7, 11 + 7) + 7 * 13 + 1 + (13 + 7) * 7,
        **_RECURRENT,
    ),
    Case(
        "attention_rnn",
        layers.AttentionRNN,
        lambda policy: layers.AttentionRNN(
            _cell(layers.RecurrentAttentionCell, policy, keras.layers.GRUCell(7, dtype=policy)), dtype=policy
        ),
        output=(2, 3, 7 + 13),
        weights=(2, 3, 5),
        parameters=_gru(7, 11 + 13) + _ADDITIVE,
        **_DECODER,
    ),
    Case(
        "attention_rnn_with_heads",
        layers.AttentionRNN,
        lambda policy: layers.AttentionRNN(
            _cell(layers.LuongAttentionCell, policy, _stack(policy), layers.MultiHeadAttention(7, 19, dtype=policy)),
            dtype=policy,
        ),
        output=(2, 3, 7),
        weights=(2, 7, 3, 5),
        parameters=_gru(19, 11 + 7) + _lstm(7, 19) + _MULTI_HEAD + (7 + 7) * 7,
        flat=FLAT,
        **_DECODER,
    ),
    Case(
        "deep_transition_cell",
        layers.DeepTransitionCell,
        lambda policy: keras.layers.RNN(_deep(policy), return_sequences=True, dtype=policy),
        {"inputs": (2, 5, 11)},
        (2, 5, 7),
        _gru(7, 11) + 2 * _transition(7),
        part=lambda layer: layer.cell,
    ),
    Case(
        "bidirectional_encoder_gru",
        layers.BidirectionalEncoder,
        lambda policy: layers.BidirectionalEncoder(7, dtype=policy),
        parameters=2 * _gru(7, 11),
        **_ENCODER,
    ),
    Case(
        "bidirectional_encoder_lstm",
        layers.BidirectionalEncoder,
        lambda policy: layers.BidirectionalEncoder(
            7, num_layers=2, cell_type="lstm", use_cudnn=False, dtype=policy, **DROPOUT
        ),
        parameters=2 * _lstm(7, 11) + 2 * _lstm(7, 14),
        **_ENCODER,
    ),
]
