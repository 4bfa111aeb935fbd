"""The recurrent attention cell."""

import math

import keras
import numpy as np
import pytest
from cases import CASES
from contract import arrays, build, call, random_array, random_mask, to_numpy
from keras import ops

from zoo import layers

BY_NAME = {case.name: case for case in CASES}


def _sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def _gru(cell, inputs, states):
    """One step of Keras' GRU (gates z, r and h; the reset comes after the product), from its formula."""
    (state,) = states
    kernel, recurrent, bias = map(to_numpy, (cell.kernel, cell.recurrent_kernel, cell.bias))
    x = np.split(inputs @ kernel + bias[0], 3)
    s = np.split(state @ recurrent + bias[1], 3)
    update, reset = _sigmoid(x[0] + s[0]), _sigmoid(x[1] + s[1])
    return [update * state + (1.0 - update) * np.tanh(x[2] + reset * s[2])]


def _lstm(cell, inputs, states):
    """One step of Keras' LSTM (gates i, f, c and o), from its formula."""
    state, carry = states
    gates = inputs @ to_numpy(cell.kernel) + state @ to_numpy(cell.recurrent_kernel) + to_numpy(cell.bias)
    i, f, c, o = np.split(gates, 4)
    carry = _sigmoid(f) * carry + _sigmoid(i) * np.tanh(c)
    return [_sigmoid(o) * np.tanh(carry), carry]


def _context(score, state, memory, allowed):
    w1, w2, v = (to_numpy(dense.kernel) for dense in (score.query_dense, score.key_dense, score.score_dense))
    bias = to_numpy(score.query_dense.bias)
    weights = [
        math.exp((np.tanh(state @ w1 + h @ w2 + bias) @ v).item()) * ok for h, ok in zip(memory, allowed, strict=True)
    ]
    return sum(weight * h for weight, h in zip(weights, memory, strict=True)) / sum(weights)


@pytest.mark.parametrize(("name", "step"), [("gru", _gru), ("lstm", _lstm)])
def test_reference(name, step):
    case = BY_NAME[f"recurrent_attention_cell_{name}"]
    layer, inputs, mask = build(case), arrays(case), random_mask((2, 5))
    output = call(case, layer, inputs, memory_mask=mask)[0]
    for b in range(2):
        states = [inputs[key][b] for key in ("state", "carry") if key in inputs]
        for t in range(3):
            context = _context(layer.cell.attention.score, states[0], inputs["memory"][b], mask[b])
            np.testing.assert_allclose(output[b, t], [*states[0], *context], atol=5e-6)
            states = step(layer.cell.cell, np.concatenate([inputs["inputs"][b, t], context]), states)


def test_by_hand():
    # With all weights zero, a GRU halves its state, and attention is uniform.
    cell = layers.RecurrentAttentionCell(keras.layers.GRUCell(2), layers.AdditiveAttention(1), memory_dim=2)
    cell.build((1, 1))
    cell.set_weights([np.zeros(weight.shape) for weight in cell.weights])
    memory = np.array([[[4.0, 4.0], [0.0, 8.0]]], "float32")
    states = cell.initial_states(memory, None, [np.array([[8.0, -4.0]], "float32")])
    outputs = keras.layers.RNN(cell, return_sequences=True)(np.zeros((1, 2, 1), "float32"), initial_state=states)
    np.testing.assert_allclose(to_numpy(outputs), [[[8.0, -4.0, 2.0, 6.0], [4.0, -2.0, 2.0, 6.0]]], rtol=1e-6)


def test_steps_equal_the_recurrent_layer():
    case = BY_NAME["recurrent_attention_cell_lstm"]
    layer, inputs, mask = build(case), arrays(case), random_mask((2, 5))
    expected = call(case, layer, inputs, memory_mask=mask)[0]
    # A memory projected once is as good as the memory.
    memory = layer.cell.attention.project_memory(ops.convert_to_tensor(inputs["memory"]))
    states = layer.cell.initial_states(memory, mask, [inputs["state"], inputs["carry"]])
    for position in range(3):
        output, states = layer.cell(inputs["inputs"][:, position], states)
        np.testing.assert_allclose(to_numpy(output), expected[:, position], atol=2e-6)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="Keras' RNN masks only flat states on JAX")
def test_masked_steps_keep_the_state():
    case = BY_NAME["recurrent_attention_cell_gru"]
    layer, inputs = build(case), arrays(case)
    mask = np.array([[True, False, True], [True, True, False]])
    rnn = keras.layers.RNN(layer.cell, return_sequences=True, return_state=True)

    def run(sequence, mask=None):
        states = layer.cell.initial_states(inputs["memory"], None, [inputs["state"]])
        results = rnn(sequence, initial_state=states, mask=mask)
        return to_numpy(results[0]), to_numpy(results[1])

    outputs, state = run(inputs["inputs"], mask)
    for b in range(2):
        short = np.broadcast_to(inputs["inputs"][b][mask[b]], (2, 2, 11))
        expected, expected_state = run(short)
        if b == 0:  # the memory and the state are those of the row
            np.testing.assert_allclose(outputs[0][mask[0]], expected[0], atol=2e-6)
        np.testing.assert_allclose(state[b], expected_state[b], atol=2e-6)


def test_dropout_of_the_attention_works_inside_the_loop():
    attention = layers.AdditiveAttention(31, dropout=0.5, seed=3)
    cell = layers.RecurrentAttentionCell(keras.layers.GRUCell(7), attention, memory_dim=13)
    cell.build((2, 11))
    rnn = keras.layers.RNN(cell, return_sequences=True)
    inputs, memory, state = random_array((2, 3, 11), 1), random_array((2, 5, 13), 2), random_array((2, 7), 3)
    states = cell.initial_states(memory, None, [state])
    plain, trained = (to_numpy(rnn(inputs, initial_state=states, training=training)) for training in (False, True))
    assert np.all(np.isfinite(trained)) and not np.array_equal(plain, trained)


def test_errors():
    attention = layers.AdditiveAttention(31)
    for options in ({"dropout": 0.5}, {"recurrent_dropout": 0.25}):
        with pytest.raises(
            ValueError, match="`cell` must have no dropout; .* Received: dropout=.*, recurrent_dropout="
        ):
            layers.RecurrentAttentionCell(keras.layers.GRUCell(7, **options), attention, memory_dim=13)
    with pytest.raises(ValueError, match="`memory_dim` must be a positive integer. Received: memory_dim=0."):
        layers.RecurrentAttentionCell(keras.layers.GRUCell(7), attention, memory_dim=0)
    cell = layers.RecurrentAttentionCell(keras.layers.GRUCell(7), attention, memory_dim=13)
    with pytest.raises(ValueError, match="call `RNN` with `initial_state=cell.initial_states"):
        keras.layers.RNN(cell)(np.zeros((2, 3, 11), "float32"))
