"""Recurrent attention cells in both orders, by themselves and in `keras.layers.RNN`."""

import math

import keras
import numpy as np
import pytest
from keras import ops
from support.every import assert_refused
from support.layers.contract import (
    arrays,
    build,
    call,
    compiled,
    graph_and_xla,
    random_array,
    random_mask,
    randomize,
    to_numpy,
)
from support.layers.recurrent import (
    BY_NAME,
    STATES,
    assert_close,
    every_cell,
    run_reference,
)

from zoo import layers


@every_cell
def test_cells_in_the_recurrent_layer_and_step_by_step(case):
    layer, inputs, mask = build(case), arrays(case), random_mask((2, 5))
    output = call(case, layer, inputs, memory_mask=mask)[0]
    for b in range(2):
        states = [inputs[name][b] for name in STATES if name in inputs]
        outputs, alignments, _ = run_reference(layer.cell, inputs["inputs"][b], states, inputs["memory"][b], mask[b])
        expected = np.concatenate([outputs, alignments], -1) if layer.cell.return_attention_scores else outputs
        assert_close(output[b], expected)
    # A memory projected once is as good as the memory.
    memory = layer.cell.project_memory(inputs["memory"])
    states = layer.cell.initial_states(memory, mask, [inputs[name] for name in STATES if name in inputs])
    for position in range(2):
        step, states = layer.cell(inputs["inputs"][:, position], states)
        assert_close(step, output[:, position], atol=2e-6)


def test_bahdanau_by_hand():
    # With all weights zero, a GRU halves its state, and attention is uniform.
    cell = layers.RecurrentAttentionCell(keras.layers.GRUCell(2), layers.AdditiveAttention(1), memory_dim=2)
    cell.build((1, 1))
    cell.set_weights([np.zeros(weight.shape) for weight in cell.weights])
    memory = np.array([[[4.0, 4.0], [0.0, 8.0]]], "float32")
    states = cell.initial_states(memory, None, [np.array([[8.0, -4.0]], "float32")])
    outputs = keras.layers.RNN(cell, return_sequences=True)(np.zeros((1, 2, 1), "float32"), initial_state=states)
    assert_close(outputs, [[[8.0, -4.0, 2.0, 6.0], [4.0, -2.0, 2.0, 6.0]]])


def test_coverage_by_hand():
    # Scores are −99 · tanh(2 C): even attention at first, when nothing is covered; then what had all is left alone.
    cell = layers.RecurrentAttentionCell(keras.layers.GRUCell(1), layers.Attention(layers.CoverageScore(1)), 1)
    cell.build((1, 1))
    cell.set_weights([np.zeros(weight.shape) for weight in cell.weights])
    score = cell.attention.score
    score.coverage_dense.kernel.assign([[2.0]])
    score.score_dense.kernel.assign([[-99.0]])
    inputs, memory = ops.zeros((1, 1)), cell.project_memory(np.array([[[4.0], [8.0]]], "float32"))
    states = cell.own_states(None, 1, 2)
    _, weights, states = cell.advance(inputs, states, memory, return_attention_scores=True)
    assert_close(weights, [[0.5, 0.5]])
    assert_close(states[-1], [[0.5, 0.5]])
    covered = [states[0], ops.convert_to_tensor([[0.0, 1.0]])]
    output, weights, states = cell.advance(inputs, covered, memory, return_attention_scores=True)
    assert_close(weights, [[1.0, 0.0]])
    assert_close(output, [[0.0, 4.0]])
    assert_close(states[-1], [[1.0, 1.0]])


def test_coverage_is_of_each_beam():
    score = layers.CoverageScore(7, max_fertility=2)
    cell = layers.RecurrentAttentionCell(keras.layers.GRUCell(3), layers.Attention(score), memory_dim=5)
    cell.build((2, 2))
    randomize(cell)
    memory, inputs = cell.project_memory(random_array((2, 11, 5), 1)), ops.convert_to_tensor(random_array((6, 2), 2))
    states = [ops.convert_to_tensor(np.abs(random_array((6, size), size))) for size in (3, 11)]
    shared = cell.advance(inputs, states, memory, return_attention_scores=True, sharing=3)
    memory = {name: ops.repeat(tensor, 3, axis=0) for name, tensor in memory.items()}
    expected = cell.advance(inputs, states, memory, return_attention_scores=True)
    for result, alone in zip(keras.tree.flatten(shared), keras.tree.flatten(expected), strict=True):
        assert_close(result, to_numpy(alone))


def test_coverage_is_of_one_head():
    attention = layers.MultiHeadAttention(3, 5, score=layers.CoverageScore(7))
    with pytest.raises(ValueError, match="attention=MultiHeadAttention"):
        layers.RecurrentAttentionCell(keras.layers.GRUCell(3), attention, memory_dim=5)


def test_luong_by_hand():
    # One unit, s = tanh(h̃) of the step before (or tanh(0)), uniform attention to (1, 0), h̃ = tanh(c + s), c = ½.
    memory = np.array([[[1.0], [0.0]]], "float32")
    memory_of_equal_keys = {"key": np.zeros((1, 2, 1), "float32"), "value": memory}
    for input_feeding in (True, False):
        inner = keras.layers.SimpleRNNCell(1, use_bias=False)
        cell = layers.LuongAttentionCell(inner, layers.DotAttention(), memory_dim=1, input_feeding=input_feeding)
        cell.build((1, 1))
        kernel = [[0.0], [1.0]] if input_feeding else [[0.0]]
        cell.set_weights([np.array(kernel), np.zeros((1, 1)), np.ones((2, 1))])
        outputs = layers.AttentionRNN(cell)(np.ones((1, 2, 1), "float32"), memory_of_equal_keys)
        first = math.tanh(0.5)
        second = math.tanh(0.5 + math.tanh(first)) if input_feeding else first
        assert_close(outputs, [[[first], [second]]])


def test_the_cells_output_is_that_of_the_loop():
    case = BY_NAME["luong_attention_cell_stack"]
    layer, inputs, mask = build(case), arrays(case), random_mask((2, 5))
    output, weights = layer.cell.split_output(layer(*inputs.values(), memory_mask=mask))
    loop = layers.AttentionRNN(layer.cell)
    states = [inputs[name] for name in STATES]
    expected = loop(inputs["inputs"], inputs["memory"], states, memory_mask=mask, return_attention_scores=True)
    assert_close(output, to_numpy(expected[0]), atol=1e-7)
    assert_close(weights, to_numpy(expected[1]), atol=1e-7)
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
    assert_close(outputs, to_numpy(expected))
    assert_close(alignments, to_numpy(weights))
    step, alignment = cell.split_output(cell(inputs[:, 0], cell.initial_states(memory))[0])
    assert_close(step, to_numpy(expected)[:, 0])
    assert_close(alignment, to_numpy(weights)[:, :, 0])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("cell_class", "attention", "with_state"),
    [
        (layers.RecurrentAttentionCell, lambda: layers.MultiHeadAttention(3, 5), True),
        (layers.LuongAttentionCell, lambda: layers.AdditiveAttention(5), False),
    ],
    ids=["bahdanau", "luong"],
)
def test_cells_in_functional_models_reload(cell_class, attention, with_state, tmp_path):
    cell = cell_class(keras.layers.GRUCell(7), attention(), memory_dim=13)
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
    assert_close(model(inputs), expected, atol=1e-7)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert [weight.shape for weight in loaded.weights] == [weight.shape for weight in cell.weights]
    np.testing.assert_array_equal(to_numpy(loaded(inputs)), to_numpy(model(inputs)))


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


@graph_and_xla
def test_one_compiled_step(xla):
    case = BY_NAME["luong_attention_cell_gru"]
    layer, inputs = build(case), arrays(case)
    expected = to_numpy(layer(*inputs.values()))
    step = compiled(lambda x, *states: layer.cell(x, list(states)), xla)
    states = layer.cell.initial_states(inputs["memory"], None, [inputs["state"]])
    for position in range(3):
        output, states = step(ops.convert_to_tensor(inputs["inputs"][:, position]), *states)
        assert_close(output, expected[:, position])


def _cell(cell=None, **options):
    cell = keras.layers.GRUCell(7) if cell is None else cell
    return layers.RecurrentAttentionCell(cell, layers.AdditiveAttention(31), **{"memory_dim": 13, **options})


WRONG = [
    (lambda: _cell(memory_dim=0), "memory_dim=0"),
    (lambda: layers.LuongAttentionCell(keras.layers.GRUCell(7), "dot", 8), "attention='dot'"),
    (lambda: _cell("gru"), "cell='gru'"),
    (lambda: _cell(keras.layers.GRUCell), "cell=<class"),
    (lambda: _cell(keras.layers.GRU(7)), "cell=<GRU"),
    (lambda: _cell([keras.layers.GRUCell(7), keras.layers.Dense(7)]), r"cell=\[<GRUCell.*<Dense"),
    (lambda: layers.AttentionRNN(keras.layers.GRUCell(7)), "cell=<GRUCell"),
    (
        lambda: layers.LuongAttentionCell(keras.layers.GRUCell(7), layers.DotAttention(), 7, attentional_dim=-1),
        "attentional_dim=-1",
    ),
    (lambda: keras.layers.RNN(_cell())(np.zeros((2, 3, 11), "float32")), "initial_states.*initial_state=None"),
    (lambda: _cell().own_states([np.zeros((2, 7))] * 2, 2), r"inner_states.* 1 .*\[7\].* 2 "),
    (lambda: _cell(return_attention_scores=True).output_size, "AttentionRNN.*return_attention_scores=True"),
    (
        lambda: layers.AttentionRNN(_cell())(
            np.zeros((2, 3, 11), "float32"), np.zeros((2, 5, 13), "float32"), memory_mask=np.ones((2, 5))
        ),
        "memory_mask.*float",
    ),
    (lambda: _cell(keras.layers.GRUCell(7, dropout=0.5)), "cell.*dropout=0.5"),
    (
        lambda: _cell([keras.layers.GRUCell(7), keras.layers.GRUCell(7, recurrent_dropout=0.25)]),
        "recurrent_dropout=0.25",
    ),
    (
        lambda: layers.LuongAttentionCell(keras.layers.GRUCell(7, dropout=0.5), layers.AdditiveAttention(31), 13),
        "cell.*dropout=0.5",
    ),
]


def test_errors():
    assert_refused(WRONG)
