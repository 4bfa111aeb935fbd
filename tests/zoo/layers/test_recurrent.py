"""Recurrent attention: the cells in both orders, alone, in `keras.layers.RNN` and in `AttentionRNN`."""

import math

import keras
import numpy as np
import pytest
from cases_recurrent import CASES
from contract import arrays, build, call, compiled, random_array, random_mask, randomize, to_numpy
from keras import ops

from zoo import layers

BY_NAME = {case.name: case for case in CASES}
CELLS = [case for case in CASES if case.covers in (layers.RecurrentAttentionCell, layers.LuongAttentionCell)]
LOOPS = [case for case in CASES if case.covers is layers.AttentionRNN]
STATES = ("state", "state2", "state3")

each_cell = pytest.mark.parametrize("case", CELLS, ids=lambda case: case.name)
each_loop = pytest.mark.parametrize("case", LOOPS, ids=lambda case: case.name)


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


def _step(cell, inputs, states):
    return (_gru if isinstance(cell, keras.layers.GRUCell) else _lstm)(cell, inputs, states)


def _inner(cell):
    return cell.cells if isinstance(cell, keras.layers.StackedRNNCells) else [cell]


def _stack(cell, inputs, states):
    """One step of a stack: each cell reads the first state of the one below."""
    states, new = list(states), []
    for each in _inner(cell):
        count = 1 if isinstance(each, keras.layers.GRUCell) else 2
        new.append(_step(each, inputs, states[:count]))
        states, inputs = states[count:], new[-1][0]
    return [state for each in new for state in each]


def _query(cell, states):
    return states[-1] if isinstance(_inner(cell)[-1], keras.layers.GRUCell) else states[-2]


def _weighted(scores, values, allowed):
    exponentials = np.array([math.exp(score) * ok for score, ok in zip(scores, allowed, strict=True)])
    weights = exponentials / exponentials.sum()
    return sum(weight * value for weight, value in zip(weights, values, strict=True)), weights


def _attend(attention, query, memory, allowed):
    """Returns context and weights [S] or [N, S] of one query."""
    if isinstance(attention, layers.AdditiveAttention):
        score = attention.score
        w1, w2, v = (to_numpy(dense.kernel) for dense in (score.query_dense, score.key_dense, score.score_dense))
        bias = to_numpy(score.query_dense.bias)
        return _weighted([(np.tanh(query @ w1 + h @ w2 + bias) @ v).item() for h in memory], memory, allowed)
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


def _bahdanau(cell, inputs, states, memory, allowed):
    query = _query(cell.cell, states)
    context, weights = _attend(cell.attention, query, memory, allowed)
    states = _stack(cell.cell, np.concatenate([inputs, context]), states)
    return np.concatenate([query, context]), weights, states


def _luong(cell, inputs, states, memory, allowed):
    if cell.input_feeding:
        *states, fed = states
        inputs = np.concatenate([inputs, fed])
    states = _stack(cell.cell, inputs, states)
    query = _query(cell.cell, states)
    context, weights = _attend(cell.attention, query, memory, allowed)
    output = np.tanh(np.concatenate([context, query]) @ to_numpy(cell.attentional_dense.kernel))
    return output, weights, [*states, output] if cell.input_feeding else states


def _run(cell, inputs, states, memory, allowed):
    """Returns outputs [T, D], alignments [T, (N,) S] and states of one sequence."""
    order = _luong if isinstance(cell, layers.LuongAttentionCell) else _bahdanau
    if isinstance(cell, layers.LuongAttentionCell) and cell.input_feeding:
        states = [*states, np.zeros(cell.attentional_dense.units)]
    outputs, alignments = [], []
    for x in inputs:
        output, weights, states = order(cell, x, states, memory, allowed)
        outputs.append(output)
        alignments.append(weights)
    return np.array(outputs), np.array(alignments), states


def _close(result, expected, atol=5e-6):
    np.testing.assert_allclose(to_numpy(result), expected, atol=atol, rtol=1e-5)


@each_cell
def test_cells_in_the_recurrent_layer(case):
    layer, inputs, mask = build(case), arrays(case), random_mask((2, 5))
    output = call(case, layer, inputs, memory_mask=mask)[0]
    for b in range(2):
        states = [inputs[name][b] for name in STATES if name in inputs]
        outputs, alignments, _ = _run(layer.cell, inputs["inputs"][b], states, inputs["memory"][b], mask[b])
        expected = np.concatenate([outputs, alignments], -1) if layer.cell.return_attention_scores else outputs
        _close(output[b], expected)


@each_loop
def test_loops(case):
    layer, inputs, mask = build(case), arrays(case), random_mask((2, 5))
    initial = [random_array((2, size), [size, 3]) for size in layer.cell.inner_state_sizes]
    options = {"memory_mask": mask, "return_attention_scores": True, "return_state": True}
    output, weights, states = layer(**inputs, initial_state=initial, **options)
    for b in range(2):
        own = [state[b] for state in initial]
        expected = _run(layer.cell, inputs["inputs"][b], own, inputs["memory"][b], mask[b])
        _close(output[b], expected[0])
        _close(weights[b], np.moveaxis(expected[1], 0, -2))
        assert len(states) == len(expected[2])
        for state, reference in zip(states, expected[2], strict=True):
            _close(state[b], reference)


def test_bahdanau_by_hand():
    # With all weights zero, a GRU halves its state, and attention is uniform.
    cell = layers.RecurrentAttentionCell(keras.layers.GRUCell(2), layers.AdditiveAttention(1), memory_dim=2)
    cell.build((1, 1))
    cell.set_weights([np.zeros(weight.shape) for weight in cell.weights])
    memory = np.array([[[4.0, 4.0], [0.0, 8.0]]], "float32")
    states = cell.initial_states(memory, None, [np.array([[8.0, -4.0]], "float32")])
    outputs = keras.layers.RNN(cell, return_sequences=True)(np.zeros((1, 2, 1), "float32"), initial_state=states)
    _close(outputs, [[[8.0, -4.0, 2.0, 6.0], [4.0, -2.0, 2.0, 6.0]]])


@pytest.mark.parametrize("input_feeding", [True, False])
def test_luong_by_hand(input_feeding):
    # One unit, s = tanh(h̃) of the step before (or tanh(0)), uniform attention to (1, 0), h̃ = tanh(c + s), c = ½.
    inner = keras.layers.SimpleRNNCell(1, use_bias=False)
    cell = layers.LuongAttentionCell(inner, layers.DotAttention(), memory_dim=1, input_feeding=input_feeding)
    cell.build((1, 1))
    kernel = [[0.0], [1.0]] if input_feeding else [[0.0]]
    cell.set_weights([np.array(kernel), np.zeros((1, 1)), np.ones((2, 1))])
    memory = np.array([[[1.0], [0.0]]], "float32")
    memory_of_equal_keys = {"key": np.zeros((1, 2, 1), "float32"), "value": memory}
    outputs = layers.AttentionRNN(cell)(np.ones((1, 2, 1), "float32"), memory_of_equal_keys)
    first = math.tanh(0.5)
    second = math.tanh(0.5 + math.tanh(first)) if input_feeding else first
    _close(outputs, [[[first], [second]]])


@each_cell
def test_steps_equal_the_recurrent_layer(case):
    layer, inputs, mask = build(case), arrays(case), random_mask((2, 5))
    expected = call(case, layer, inputs, memory_mask=mask)[0]
    # A memory projected once is as good as the memory.
    memory = layer.cell.project_memory(inputs["memory"])
    states = layer.cell.initial_states(memory, mask, [inputs[name] for name in STATES if name in inputs])
    for position in range(3):
        output, states = layer.cell(inputs["inputs"][:, position], states)
        _close(output, expected[:, position], atol=2e-6)


@each_loop
def test_loops_go_on_from_their_states(case):
    layer, inputs = build(case), arrays(case)
    options = {"return_attention_scores": True, "return_state": True, "memory_mask": random_mask((2, 5))}
    expected = layer(**inputs, **options)
    projected = layer.cell.project_memory(inputs["memory"], options["memory_mask"])
    first = layer(inputs["inputs"][:, :2], projected, **options)
    second = layer(inputs["inputs"][:, 2:], projected, initial_state=first[2], **options)
    for part, axis in ((0, 1), (1, -2)):
        joined = ops.concatenate([first[part], second[part]], axis=axis)
        _close(joined, to_numpy(expected[part]), atol=2e-6)
    for state, reference in zip(second[2], expected[2], strict=True):
        _close(state, to_numpy(reference), atol=2e-6)


def test_the_cells_output_is_that_of_the_loop():
    case = BY_NAME["luong_attention_cell_stack"]
    layer, inputs, mask = build(case), arrays(case), random_mask((2, 5))
    output, weights = layer.cell.split_output(layer(*inputs.values(), memory_mask=mask))
    loop = layers.AttentionRNN(layer.cell)
    states = [inputs[name] for name in STATES]
    expected = loop(inputs["inputs"], inputs["memory"], states, memory_mask=mask, return_attention_scores=True)
    _close(output, to_numpy(expected[0]), atol=1e-7)
    _close(weights, to_numpy(expected[1]), atol=1e-7)
    assert np.allclose(to_numpy(weights).sum(-1), 1.0, atol=1e-5) and not np.any(to_numpy(weights)[..., -1])


def test_heads_in_the_recurrent_layer():
    # The states have the projected memory with its heads, the output their weights.
    loop = build(BY_NAME["attention_rnn_with_heads"])
    inputs, memory = arrays(BY_NAME["attention_rnn_with_heads"]).values()
    expected, weights = loop(inputs, memory, return_attention_scores=True)
    config = {**loop.cell.get_config(), "return_attention_scores": True}
    cell = layers.LuongAttentionCell.from_config(config)
    rnn = keras.layers.RNN(cell, return_sequences=True)
    rnn.build(inputs.shape)
    cell.set_weights(loop.cell.get_weights())
    outputs, alignments = cell.split_output(rnn(inputs, initial_state=cell.initial_states(memory)))
    _close(outputs, to_numpy(expected))
    _close(alignments, to_numpy(weights))
    step, alignment = cell.split_output(cell(inputs[:, 0], cell.initial_states(memory))[0])
    _close(step, to_numpy(expected)[:, 0])
    _close(alignment, to_numpy(weights)[:, :, 0])


def test_cells_in_functional_models():
    case = BY_NAME["recurrent_attention_cell_gru"]
    layer, inputs = build(case), arrays(case)
    expected = to_numpy(layer(*inputs.values()))
    sequence, memory, state = keras.Input((None, 11)), keras.Input((None, 13)), keras.Input((7,))
    states = layer.cell.initial_states(memory, None, [state])
    rnn = keras.layers.RNN(layer.cell, return_sequences=True)
    model = keras.Model([sequence, memory, state], rnn(sequence, initial_state=states))
    _close(model(list(inputs.values())), expected, atol=1e-7)


def _attention(name):
    return layers.AdditiveAttention(5) if name == "additive" else layers.MultiHeadAttention(3, 5)


@pytest.mark.parametrize("attention", ["additive", "multi_head"])
@pytest.mark.parametrize("cell_class", [layers.RecurrentAttentionCell, layers.LuongAttentionCell])
@pytest.mark.parametrize("with_state", [True, False])
def test_cells_in_functional_models_reload(cell_class, attention, with_state, tmp_path):
    cell = cell_class(keras.layers.GRUCell(7), _attention(attention), memory_dim=13)
    cell.build((None, 11))
    randomize(cell)
    sequence, memory, state = keras.Input((None, 11)), keras.Input((None, 13)), keras.Input((7,))
    mask = keras.Input((None,), dtype="bool")
    states = cell.initial_states(memory, mask, [state] if with_state else None)
    outputs = keras.layers.RNN(cell, return_sequences=True)(sequence, initial_state=states)
    model = keras.Model([sequence, memory, mask] + [state] * with_state, outputs)
    inputs = [random_array((2, 3, 11), 1), random_array((2, 5, 13), 2), random_mask((2, 5))]
    inputs += [random_array((2, 7), 3)] * with_state
    own = cell.initial_states(inputs[1], inputs[2], inputs[3:] or [np.zeros((2, 7), "float32")])
    expected = to_numpy(keras.layers.RNN(cell, return_sequences=True)(inputs[0], initial_state=own))
    _close(model(inputs), expected, atol=1e-7)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert [weight.shape for weight in loaded.weights] == [weight.shape for weight in cell.weights]
    np.testing.assert_array_equal(to_numpy(loaded(inputs)), to_numpy(model(inputs)))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="other backends have no unknown sizes")
@pytest.mark.parametrize("name", ["attention_rnn", "attention_rnn_with_heads"])
def test_memories_of_unknown_length_in_graphs(name):
    import tensorflow as tf

    loop = build(BY_NAME[name])
    # `RNN` masks nothing here: it does not mask outputs of unknown width.
    in_rnn = type(loop.cell).from_config({**loop.cell.get_config(), "return_attention_scores": True})
    rnn = keras.layers.RNN(in_rnn, return_sequences=True)
    rnn.build((None, None, 11))
    in_rnn.set_weights(loop.cell.get_weights())
    signature = [tf.TensorSpec([None, None, size]) for size in (11, 13)]
    signature += [tf.TensorSpec([None, None], tf.bool)] * 2

    @tf.function(input_signature=signature)
    def in_loop(inputs, memory, mask, memory_mask):
        return loop(inputs, memory, mask=mask, memory_mask=memory_mask, return_attention_scores=True)

    @tf.function(input_signature=signature)
    def in_layer(inputs, memory, mask, memory_mask):
        return in_rnn.split_output(rnn(inputs, initial_state=in_rnn.initial_states(memory, memory_mask)))

    for length, size in ((3, 5), (2, 7)):
        inputs, memory = random_array((2, length, 11), 1), random_array((2, size, 13), 2)
        everything, memory_mask = np.ones((2, length), bool), random_mask((2, size))
        expected = loop(inputs, memory, memory_mask=memory_mask, return_attention_scores=True)
        for function in (in_loop, in_layer):
            for result, reference in zip(function(inputs, memory, everything, memory_mask), expected, strict=True):
                assert result.shape == reference.shape
                _close(result, to_numpy(reference), atol=2e-6)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="XLA is TensorFlow's option")
def test_gradients_of_alignments_under_xla():
    import tensorflow as tf

    loop = build(BY_NAME["attention_rnn"])
    inputs, memory = map(tf.constant, arrays(BY_NAME["attention_rnn"]).values())

    def gradient():
        with tf.GradientTape() as tape:
            tape.watch([inputs, memory])
            output, weights = loop(inputs, memory, return_attention_scores=True)
            loss = tf.reduce_sum(output) + tf.reduce_sum(weights[..., 0] ** 2)
        return tape.gradient(loss, [inputs, memory])

    for result, reference in zip(tf.function(gradient, jit_compile=True)(), gradient(), strict=True):
        _close(result, reference.numpy())


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


@each_loop
def test_masked_steps_are_left_out(case):
    layer, inputs = build(case), arrays(case)
    mask = np.array([[True, False, True], [True, True, False]])
    options = {"return_attention_scores": True, "return_state": True}
    output, weights, states = layer(**inputs, mask=mask, **options)
    assert not np.any(to_numpy(output)[~mask]) and not np.any(np.moveaxis(to_numpy(weights), -2, 1)[~mask])
    for b in range(2):
        short = layer(inputs["inputs"][b : b + 1, mask[b]], inputs["memory"][b : b + 1], **options)
        _close(output[b][mask[b]], to_numpy(short[0])[0], atol=2e-6)
        _close(ops.moveaxis(weights[b], -2, 0)[mask[b]], np.moveaxis(to_numpy(short[1])[0], -2, 0), atol=2e-6)
        for state, reference in zip(states, short[2], strict=True):
            _close(state[b], to_numpy(reference)[0], atol=2e-6)


def test_masks_of_embeddings_are_found():
    loop = build(BY_NAME["attention_rnn"])
    embedding = keras.layers.Embedding(17, 13, mask_zero=True)
    ids = np.array([[3, 5, 7, 0, 0], [2, 4, 0, 0, 0]], "int32")
    inputs = random_array((2, 3, 11), 1)
    source, target = keras.Input((None,), dtype="int32"), keras.Input((None, 11))
    model = keras.Model([target, source], loop(target, embedding(source), return_attention_scores=True))
    output, weights = model([inputs, ids])
    assert np.array_equal(to_numpy(weights) > 0, np.broadcast_to((ids > 0)[:, None], (2, 3, 5)))
    expected = loop(inputs, to_numpy(embedding(ids)), memory_mask=ids > 0)
    _close(output, to_numpy(expected), atol=2e-6)


def test_hidden_memory_may_be_anything():
    loop = build(BY_NAME["attention_rnn"])
    inputs, memory = arrays(BY_NAME["attention_rnn"]).values()
    mask = random_mask((2, 5))
    expected = to_numpy(loop(inputs, memory, memory_mask=mask))
    memory = np.where(mask[:, :, None], memory, np.nan)
    np.testing.assert_array_equal(to_numpy(loop(inputs, memory, memory_mask=mask)), expected)


class Pointer(layers.BaseAttention):
    """Attention of query t to key t alone."""

    needs_query_position = True

    def build(self, query_shape, value_shape=None):
        """Has no weights."""

    def compare(self, query, key, visible):
        distance = ops.abs(visible.key_positions - visible.query_positions[:, None])
        scores = -1e4 * ops.cast(distance, query.dtype)
        return ops.broadcast_to(scores, (ops.shape(query)[0], *ops.shape(scores)))

    def compute_output_shape(self, query_shape, value_shape=None):
        return (*query_shape[:-1], value_shape[-1])


@pytest.mark.parametrize("cell_class", [layers.RecurrentAttentionCell, layers.LuongAttentionCell])
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_attention_learns_the_number_of_the_step(cell_class, policy):
    inner = keras.layers.GRUCell(2, dtype=policy)
    loop = layers.AttentionRNN(cell_class(inner, Pointer(dtype=policy), memory_dim=2, dtype=policy), dtype=policy)
    inputs, memory = np.zeros((2, 7, 3), "float32"), random_array((2, 261, 2), 1)
    mask = np.ones((2, 7), bool)
    mask[0, 3:] = False  # a row that has ended does not stop the others
    options = {"mask": mask, "return_attention_scores": True, "return_state": True}
    _, weights, states = loop(inputs, memory, **options)
    expected = np.eye(261)[:7] * mask[:, :, None]
    np.testing.assert_array_equal(to_numpy(weights), expected)
    np.testing.assert_array_equal(to_numpy(states[-1]), [[3, 0], [7, 0]])
    # bfloat16 cannot count these one by one.
    states[-1] = np.array([[253, 0], [253, 0]], "float32")
    _, weights, states = loop(inputs, memory, states, **options)
    np.testing.assert_array_equal(to_numpy(weights), np.roll(expected, 253, axis=-1))
    np.testing.assert_array_equal(to_numpy(states[-1]), [[0, 1], [4, 1]])
    assert len(loop.cell.initial_states(memory)) == len(loop.cell.state_size)


@pytest.mark.parametrize("alignment", ["monotonic", "predictive"])
def test_local_attention(alignment):
    attention = layers.LocalAttention(1, alignment)
    loop = layers.AttentionRNN(layers.LuongAttentionCell(keras.layers.GRUCell(7), attention, memory_dim=13))
    _, weights = loop(random_array((2, 3, 11), 1), random_array((2, 5, 13), 2), return_attention_scores=True)
    places = to_numpy(weights) > 0
    if alignment == "monotonic":
        near = np.abs(np.arange(5) - np.arange(3)[:, None]) <= 1
        np.testing.assert_array_equal(places, np.broadcast_to(near, (2, 3, 5)))
    else:
        assert np.all((places.sum(-1) > 0) & (places.sum(-1) <= 3))


def test_lists_are_stacks():
    cells = [keras.layers.GRUCell(7), keras.layers.GRUCell(5)]
    stack = keras.layers.StackedRNNCells([keras.layers.GRUCell(7), keras.layers.GRUCell(5)])
    inputs, memory = random_array((2, 3, 11), 1), random_array((2, 5, 13), 2)
    outputs = []
    for cell in (cells, stack):
        loop = layers.AttentionRNN(layers.RecurrentAttentionCell(cell, layers.AdditiveAttention(3), memory_dim=13))
        loop.build((2, 3, 11))
        outputs.append(to_numpy(randomize(loop)(inputs, memory)))
    np.testing.assert_array_equal(*outputs)


def test_a_list_of_one_cell_with_two_states():
    memory, inputs = random_array((2, 5, 3), seed=1), random_array((2, 7, 11), seed=2)
    results = []
    for cell in (keras.layers.LSTMCell(13), [keras.layers.LSTMCell(13)]):
        cell = layers.LuongAttentionCell(cell, layers.AdditiveAttention(units=3), memory_dim=3)
        cell.build((2, 11))
        chance = np.random.default_rng(3)
        cell.set_weights([chance.normal(size=weight.shape) for weight in cell.get_weights()])
        results.append(to_numpy(keras.layers.RNN(cell)(inputs, initial_state=cell.initial_states(memory))))
    np.testing.assert_array_equal(*results)


def test_dropout_of_the_attention_works_inside_the_loop():
    attention = layers.AdditiveAttention(31, dropout=0.5, seed=3)
    cell = layers.RecurrentAttentionCell(keras.layers.GRUCell(7), attention, memory_dim=13)
    cell.build((2, 11))
    rnn = keras.layers.RNN(cell, return_sequences=True)
    inputs, memory, state = random_array((2, 3, 11), 1), random_array((2, 5, 13), 2), random_array((2, 7), 3)
    states = cell.initial_states(memory, None, [state])
    plain, trained = (to_numpy(rnn(inputs, initial_state=states, training=training)) for training in (False, True))
    assert np.all(np.isfinite(trained)) and not np.array_equal(plain, trained)
    loop = layers.AttentionRNN(cell)
    _close(loop(inputs, memory, [state]), plain)
    trained = to_numpy(loop(inputs, memory, [state], training=True))
    assert np.all(np.isfinite(trained)) and not np.array_equal(plain, trained)


def test_one_compiled_step():
    case = BY_NAME["luong_attention_cell_gru"]
    layer, inputs = build(case), arrays(case)
    expected = to_numpy(layer(*inputs.values()))
    step = compiled(lambda x, *states: layer.cell(x, list(states)), xla=True)
    states = layer.cell.initial_states(inputs["memory"], None, [inputs["state"]])
    for position in range(3):
        output, states = step(ops.convert_to_tensor(inputs["inputs"][:, position]), *states)
        _close(output, expected[:, position])


def _cell(cell=None, **options):
    cell = keras.layers.GRUCell(7) if cell is None else cell
    return layers.RecurrentAttentionCell(cell, layers.AdditiveAttention(31), **{"memory_dim": 13, **options})


@pytest.mark.parametrize("options", [{"dropout": 0.5}, {"recurrent_dropout": 0.25}])
@pytest.mark.parametrize("cell_class", [layers.RecurrentAttentionCell, layers.LuongAttentionCell])
def test_cells_with_dropout_are_refused(cell_class, options):
    message = "`cell` must have no dropout; .* Received: dropout=.*, recurrent_dropout="
    cell = keras.layers.GRUCell(7, **options)
    for inner in (cell, [keras.layers.GRUCell(7), cell]):
        with pytest.raises(ValueError, match=message):
            cell_class(inner, layers.AdditiveAttention(31), memory_dim=13)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: _cell(memory_dim=0), "`memory_dim` must be a positive integer. Received: memory_dim=0."),
        (
            lambda: layers.LuongAttentionCell(keras.layers.GRUCell(7), "dot", 8),
            "`attention` must be a layer, not the name or the class of one. Received: attention='dot'.",
        ),
        (lambda: _cell("gru"), "`cell` must be a recurrent cell, such as .* Received: cell='gru'."),
        (lambda: _cell(keras.layers.GRUCell), "`cell` must be a recurrent cell, such as .* Received: cell=<class"),
        (lambda: _cell(keras.layers.GRU(7)), "`cell` must be a recurrent cell, such as .* Received: cell=<GRU"),
        (
            lambda: _cell([keras.layers.GRUCell(7), keras.layers.Dense(7)]),
            r"`cell` must be a recurrent cell, .* Received: cell=\[<GRUCell.*<Dense",
        ),
        (
            lambda: layers.AttentionRNN(keras.layers.GRUCell(7)),
            "`cell` must be a RecurrentAttentionCell or a LuongAttentionCell. Received: cell=<GRUCell",
        ),
        (
            lambda: layers.LuongAttentionCell(keras.layers.GRUCell(7), layers.DotAttention(), 7, attentional_dim=-1),
            "`attentional_dim` must be a positive integer. Received: attentional_dim=-1.",
        ),
        (
            lambda: keras.layers.RNN(_cell())(np.zeros((2, 3, 11), "float32")),
            "call `RNN` with `initial_state=cell.initial_states",
        ),
        (
            lambda: _cell().own_states([np.zeros((2, 7))] * 2, 2),
            r"`inner_states` must be a list of 1 tensors, of sizes \[7\]. Received: 2 tensors.",
        ),
        (
            lambda: _cell(return_attention_scores=True).output_size,
            "use `AttentionRNN` in a functional model. Received: return_attention_scores=True.",
        ),
        (
            lambda: layers.AttentionRNN(_cell())(
                np.zeros((2, 3, 11), "float32"), np.zeros((2, 5, 13), "float32"), memory_mask=np.ones((2, 5))
            ),
            "`memory_mask` must be boolean",
        ),
    ],
)
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def _gru_encoder(layer, inputs, mask):
    """Returns outputs [S, 2U] and final states of a bidirectional encoder, from its cells."""
    states = []
    for bidirectional in layer.recurrent_layers:
        found = np.zeros((2, len(inputs), layer.units))
        for way, one_way in enumerate((bidirectional.forward_layer, bidirectional.backward_layer)):
            own = [np.zeros(layer.units)] * (1 if layer.cell_type == "gru" else 2)
            order = range(len(inputs))
            for j in reversed(order) if way else order:
                if mask[j]:
                    own = _step(one_way.cell, inputs[j], own)
                    found[way, j] = own[0]
            states.append(own)
        inputs = np.concatenate(found, axis=-1)
    pairs = [zip(states[i], states[i + 1], strict=True) for i in range(0, len(states), 2)]
    return inputs, [np.concatenate(pair) for each in pairs for pair in each]


@pytest.mark.parametrize("name", ["bidirectional_encoder_gru", "bidirectional_encoder_lstm"])
def test_encoder(name):
    case = BY_NAME[name]
    layer, inputs = build(case), arrays(case)["inputs"]
    mask = np.array([[True] * 5, [True, False, True, True, False]])
    outputs, states = layer(inputs, mask=mask, return_state=True)
    assert len(states) == (1 if layer.cell_type == "gru" else 4)
    for b in range(2):
        expected, expected_states = _gru_encoder(layer, inputs[b], mask[b])
        _close(outputs[b], expected)
        for state, reference in zip(states, expected_states, strict=True):
            _close(state[b], reference)


def test_encoder_by_hand():
    # All weights zero but the bias of the candidate: h = (h + 1) / 2 at every real position.
    layer = layers.BidirectionalEncoder(1)
    layer.build((2, 3, 1))
    bias = np.array([[0.0, 0.0, 99.0], [0.0, 0.0, 0.0]])
    layer.set_weights([np.zeros((1, 3)), np.zeros((1, 3)), bias] * 2)
    mask = np.array([[True, True, True], [True, True, False]])
    outputs, states = layer(np.ones((2, 3, 1), "float32"), mask=mask, return_state=True)
    _close(outputs[0], [[0.5, 0.875], [0.75, 0.75], [0.875, 0.5]])
    _close(outputs[1], [[0.5, 0.75], [0.75, 0.5], [0.0, 0.0]])
    _close(states[0], [[0.875, 0.875], [0.75, 0.75]])


@pytest.mark.parametrize("name", ["bidirectional_encoder_gru", "bidirectional_encoder_lstm"])
def test_padding_of_the_encoder_changes_nothing(name):
    layer, inputs = build(BY_NAME[name]), arrays(BY_NAME[name])["inputs"]
    expected, expected_states = layer(inputs, mask=np.ones((2, 5), bool), return_state=True)
    for room in (7, 11):
        padded = np.full((2, room, 11), 1e4, "float32")
        padded[:, :5] = inputs
        mask = np.arange(room)[None] < np.array([[5], [5]])
        outputs, states = layer(padded, mask=mask, return_state=True)
        np.testing.assert_array_equal(to_numpy(outputs)[:, :5], to_numpy(expected))
        assert not np.any(to_numpy(outputs)[:, 5:])
        for state, reference in zip(states, expected_states, strict=True):
            np.testing.assert_array_equal(to_numpy(state), to_numpy(reference))


def test_a_decoder_starts_from_the_encoder():
    source = keras.Input((None, 11))
    encoded, states = layers.BidirectionalEncoder(3, num_layers=2, cell_type="lstm")(source, return_state=True)
    cells = [keras.layers.LSTMCell(6), keras.layers.LSTMCell(6)]
    decoder = layers.AttentionRNN(layers.LuongAttentionCell(cells, layers.GeneralAttention(), memory_dim=6))
    target = keras.Input((None, 5))
    outputs, alignments = decoder(target, encoded, states, return_attention_scores=True)
    model = keras.Model([source, target], [outputs, alignments])
    outputs, alignments = model([random_array((2, 7, 11), 1), random_array((2, 3, 5), 2)])
    assert (tuple(outputs.shape), tuple(alignments.shape)) == ((2, 3, 6), (2, 3, 7))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.BidirectionalEncoder(0), "`units` must be a positive integer. Received: units=0."),
        (
            lambda: layers.BidirectionalEncoder(3, num_layers=0),
            "`num_layers` must be a positive integer. Received: num_layers=0.",
        ),
        (
            lambda: layers.BidirectionalEncoder(3, cell_type="rnn"),
            "`cell_type` must be one of gru, lstm. Received: cell_type='rnn'.",
        ),
        (
            lambda: layers.BidirectionalEncoder(3)(np.zeros((2, 3, 5), "float32"), mask=np.ones((2, 3))),
            "`mask` must be boolean",
        ),
    ],
)
def test_encoder_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
