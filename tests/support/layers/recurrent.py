"""Recurrent cells and attention step by step, written from their formulas."""

import math

import keras
import numpy as np
import pytest
from support.layers.cases.recurrent import CASES
from support.layers.contract import (
    to_numpy,
)

from zoo import layers

BY_NAME = {case.name: case for case in CASES}

CELL_CLASSES = (layers.RecurrentAttentionCell, layers.ConditionalAttentionCell, layers.LuongAttentionCell)

CELLS = [case for case in CASES if case.covers in CELL_CLASSES]

LOOPS = [case for case in CASES if case.covers is layers.AttentionRNN]

STATES = ("state", "state2", "state3")

every_cell = pytest.mark.parametrize("case", CELLS, ids=lambda case: case.name)

every_loop = pytest.mark.parametrize("case", LOOPS, ids=lambda case: case.name)


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


def _transition(cell, state):
    """One step of a GRU without inputs, from its formula."""
    z, r, candidate = np.split(state @ to_numpy(cell.recurrent_kernel) + to_numpy(cell.bias), 3)
    return _sigmoid(z) * state + (1.0 - _sigmoid(z)) * np.tanh(_sigmoid(r) * candidate)


def step_reference(cell, inputs, states):
    if isinstance(cell, layers.DeepTransitionCell):
        (state,) = step_reference(cell.cell, inputs, states)
        for transition in cell.transitions:
            state = _transition(transition, state)
        return [state]
    return (_gru if isinstance(cell, keras.layers.GRUCell) else _lstm)(cell, inputs, states)


def _inner(cell):
    return cell.cells if isinstance(cell, keras.layers.StackedRNNCells) else [cell]


def _stack(cell, inputs, states):
    """One step of a stack: each cell reads the first state of the one below."""
    states, new = list(states), []
    for each in _inner(cell):
        count = 2 if isinstance(each, keras.layers.LSTMCell) else 1
        new.append(step_reference(each, inputs, states[:count]))
        states, inputs = states[count:], new[-1][0]
    return [state for each in new for state in each]


def _query(cell, states):
    return states[-2] if isinstance(_inner(cell)[-1], keras.layers.LSTMCell) else states[-1]


def _weighted(scores, values, allowed):
    exponentials = np.array([math.exp(score) * ok for score, ok in zip(scores, allowed, strict=True)])
    weights = exponentials / exponentials.sum()
    return sum(weight * value for weight, value in zip(weights, values, strict=True)), weights


def _coverage(score, memory, attended):
    """Returns what coverage adds to each hidden layer [S, units], from the attention that each part has had [S]."""
    if not isinstance(score, layers.CoverageScore):
        return np.zeros((len(memory), 1))
    if score.max_fertility is not None:
        attended = attended / (score.max_fertility * _sigmoid(memory @ to_numpy(score.fertility_dense.kernel)[:, 0]))
    return np.outer(attended, to_numpy(score.coverage_dense.kernel)[0])


def expected_alignment(stops, before):
    """Returns where a query is expected to stop, by equation 9 of Raffel et al. 2017.

    Args:
        stops: Probability of stopping at each key once it is reached, [S].
        before: Where the query before has stopped, [S].
    """
    going_on = 1 - stops
    reached = [sum(before[k] * math.prod(going_on[k:j]) for k in range(j + 1)) for j in range(len(stops))]
    return stops * np.array(reached)


def _attend(attention, query, memory, allowed, attended):
    """Returns context and weights [S] or [N, S] of one query."""
    if isinstance(attention, layers.MonotonicAttention):
        scores = memory @ to_numpy(attention.score.key_dense.kernel) @ query + float(to_numpy(attention.offset))
        weights = expected_alignment(np.where(allowed, _sigmoid(scores), 0.0), attended)
        return weights @ memory, weights
    if isinstance(getattr(attention, "score", None), layers.AdditiveScore):
        score = attention.score
        w1, w2, v = (to_numpy(dense.kernel) for dense in (score.query_dense, score.key_dense, score.score_dense))
        bias = to_numpy(score.query_dense.bias)
        covered = _coverage(score, memory, attended)
        hidden = [np.tanh(query @ w1 + h @ w2 + c + bias) for h, c in zip(memory, covered, strict=True)]
        return _weighted([(row @ v).item() for row in hidden], memory, allowed)
    dense = (attention.query_dense, attention.key_dense, attention.value_dense)
    q, k, v = (x @ to_numpy(d.kernel) + to_numpy(d.bias) for d, x in zip(dense, (query, memory, memory), strict=True))
    found = []
    for head in range(attention.num_heads):
        part = slice(head * attention.key_dim, (head + 1) * attention.key_dim)
        scores = [q[part] @ row[part] / math.sqrt(attention.key_dim) for row in k]
        found.append(_weighted(scores, v[:, part], allowed))
    contexts, weights = zip(*found, strict=True)
    output = attention.output_dense
    return np.concatenate(contexts) @ to_numpy(output.kernel) + to_numpy(output.bias), np.array(weights)


def _bahdanau(cell, inputs, states, memory, *options):
    query = _query(cell.cell, states)
    context, weights = _attend(cell.attention, query, memory, *options)
    states = _stack(cell.cell, np.concatenate([inputs, context]), states)
    read = query if cell.readout_state == "previous" else _query(cell.cell, states)
    return np.concatenate([read, context]), weights, states


def _conditional(cell, inputs, states, memory, *options):
    previous = _query(cell.cell, states)
    states = _stack(cell.cell, inputs, states)
    context, weights = _attend(cell.attention, _query(cell.cell, states), memory, *options)
    (state,) = step_reference(cell.context_cell, context, states[-1:])
    read = previous if cell.readout_state == "previous" else state
    return np.concatenate([read, context]), weights, [*states[:-1], state]


def _luong(cell, inputs, states, memory, *options):
    if cell.input_feeding:
        *states, fed = states
        inputs = np.concatenate([inputs, fed])
    states = _stack(cell.cell, inputs, states)
    query = _query(cell.cell, states)
    context, weights = _attend(cell.attention, query, memory, *options)
    output = np.tanh(np.concatenate([context, query]) @ to_numpy(cell.attentional_dense.kernel))
    return output, weights, [*states, output] if cell.input_feeding else states


def run_reference(cell, inputs, states, memory, allowed):
    """Returns outputs [T, D], alignments [T, (N,) S] and states of one sequence."""
    order = dict(zip(CELL_CLASSES, (_bahdanau, _conditional, _luong), strict=True))[type(cell)]
    if isinstance(cell, layers.LuongAttentionCell) and cell.input_feeding:
        states = [*states, np.zeros(cell.attentional_dense.units)]
    outputs, alignments, attended = [], [], np.zeros(len(memory))
    is_recurrent = cell.attention.is_recurrent
    attended[0] = is_recurrent
    for x in inputs:
        output, weights, states = order(cell, x, states, memory, allowed, attended)
        attended = weights if is_recurrent else attended + weights
        outputs.append(output)
        alignments.append(weights)
    return np.array(outputs), np.array(alignments), states


def assert_close(result, expected, atol=5e-6):
    np.testing.assert_allclose(to_numpy(result), expected, atol=atol, rtol=1e-5)
