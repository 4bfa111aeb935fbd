"""Recurrent loops that defer the gradients of weights, beside Keras' loops, which work them out step by step."""

import keras
import numpy as np
import pytest
from keras import ops
from support.every import every
from support.layers.contract import (
    gradients,
    graph_and_xla,
    random_array,
    random_mask,
    randomize,
    tensorflow_only,
    to_numpy,
)
from support.tiers import nightly_unless

from zoo import layers
from zoo.layers.recurrent import attention_rnn
from zoo.layers.recurrent import loops as recurrence
from zoo.layers.recurrent.loops import GRU, LSTM
from zoo.models.seq2seq.recurrent_layers import MaskedInputCell

BATCH, LENGTH, DIM, UNITS, SIZE = 3, 6, 4, 5, 7
PEERS = {GRU: keras.layers.GRU, LSTM: keras.layers.LSTM}

on_tensorflow = tensorflow_only("elsewhere the loops are Keras' own")


@pytest.fixture
def loops(monkeypatch):
    """Counts the loops that defer."""
    found, run = [], recurrence.run

    def counted(*args):
        found.append(True)
        return run(*args)

    for module in (recurrence, attention_rnn):
        monkeypatch.setattr(module, "run", counted)
    return found


def results_and_gradients(function, variables, real=1.0):
    """Returns what a function of no arguments returns, and the gradients of variables, of which each output counts."""

    def results():
        outputs, *states = keras.tree.flatten(function())
        return [outputs * ops.cast(real, outputs.dtype), *states]

    def loss():
        summed = 0.0
        for number, each in enumerate(results()):
            factors = ops.convert_to_tensor(random_array(tuple(each.shape), 50 + number))
            summed += ops.sum(ops.cast(each, "float32") * factors)
        return summed

    found = gradients(loss, variables)
    return [*(to_numpy(ops.stop_gradient(each)) for each in results()), *map(to_numpy, found)]


def of_layer(layer, inputs, mask=None, training=True, **options):
    """Returns results and gradients of a recurrent layer with random weights."""
    randomize(layer)
    inputs = keras.Variable(inputs, dtype=layer.compute_dtype)
    real = 1.0
    if mask is not None:
        options["mask"] = ops.convert_to_tensor(mask)
        real = mask[:, ::-1, None] if getattr(layer, "go_backwards", False) else mask[:, :, None]
    return results_and_gradients(
        lambda: layer(ops.convert_to_tensor(inputs), training=training, **options),
        [inputs, *layer.trainable_variables],
        real,
    )


def same(ours, theirs, tolerance=2e-5):
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance * max(1.0, np.abs(other).max()))


@pytest.mark.parametrize("cls", PEERS)
def test_layers_are_those_of_keras(cls, loops):
    inputs, mask = random_array((BATCH, LENGTH, DIM), 1), random_mask((BATCH, LENGTH), 1)
    states = [random_array((BATCH, UNITS), 2 + number) for number in range(1 if cls is GRU else 2)]
    all_steps = {"return_sequences": True, "return_state": True}
    kinds = {
        "plain": (all_steps, {}),
        "masked": (all_steps, {"mask": mask}),
        "backwards": ({**all_steps, "go_backwards": True}, {"mask": mask}),
        "last output": ({}, {"initial_state": [ops.convert_to_tensor(state) for state in states]}),
    }
    with every() as failures:
        for name, (options, given) in kinds.items():
            with failures.of(name):
                found = []
                for each in (cls, PEERS[cls]):
                    layer = each(UNITS, **options)
                    layer.build((None, None, DIM))
                    found.append(of_layer(layer, inputs, **given))
                same(*found)
    assert bool(loops) == (keras.backend.backend() == "tensorflow")


@pytest.mark.nightly
@pytest.mark.parametrize("cls", PEERS)
def test_in_both_directions_padding_is_zero(cls):
    inputs, mask = random_array((BATCH, LENGTH, DIM), 1), np.arange(LENGTH) < np.array([6, 2, 4])[:, None]
    found = []
    for each in (cls, PEERS[cls]):
        layer = keras.layers.Bidirectional(each(UNITS, return_sequences=True))
        layer.build((None, LENGTH, DIM))
        found.append(of_layer(layer, inputs, mask))
        outputs = layer(inputs, mask=ops.convert_to_tensor(mask), training=True)
        assert not to_numpy(ops.stop_gradient(outputs))[~mask].any()
    same(*found)


def test_other_kinds_take_the_loop_of_keras(loops):
    inputs, options = random_array((BATCH, LENGTH, DIM), 1), {"return_sequences": True}
    kinds = {"activation": "relu", "recurrent_activation": "hard_sigmoid", "use_bias": False, "reset_after": False}
    for name, option in kinds.items():
        layer = GRU(UNITS, **options, **{name: option})
        assert layer(inputs, training=True).shape == (BATCH, LENGTH, UNITS)
        assert not loops, name
    found = []
    for each in (GRU, keras.layers.GRU):
        layer = each(UNITS, unroll=True, **options)
        layer.build((None, LENGTH, DIM))
        found.append(of_layer(layer, inputs))
    same(*found)
    assert not loops


def test_without_training_the_loop_is_that_of_keras(loops):
    layer = GRU(UNITS)
    layer(random_array((BATCH, LENGTH, DIM), 1))
    layer(random_array((BATCH, LENGTH, DIM), 1), training=False)
    assert not loops


@on_tensorflow
@pytest.mark.parametrize("cls", PEERS)
def test_weights_count_in_half_precision_as_in_whole(cls):
    inputs = random_array((BATCH, LENGTH, DIM), 1)
    found = []
    for dtype in ("mixed_bfloat16", "float32"):
        layer = cls(UNITS, return_sequences=True, dtype=dtype)
        layer.build((None, None, DIM))
        found.append(of_layer(layer, inputs))
    same(*found, tolerance=0.05)


@pytest.mark.nightly
@on_tensorflow
@graph_and_xla
@pytest.mark.parametrize("cls", PEERS)
def test_gradients_in_graphs_of_any_length(cls, xla):
    import tensorflow as tf

    layer = cls(UNITS, return_sequences=True)
    layer.build((None, None, DIM))
    randomize(layer)

    def gradient(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(inputs, training=True) ** 2)
        return tape.gradient(loss, [variable.value for variable in layer.trainable_variables])

    graph = tf.function(gradient, input_signature=[tf.TensorSpec([None, None, DIM])], jit_compile=xla)
    for length in (1, 4):
        inputs = tf.constant(random_array((BATCH, length, DIM), 1))
        same([each.numpy() for each in graph(inputs)], [each.numpy() for each in gradient(inputs)])


@on_tensorflow
def test_second_derivatives_of_weights_are_refused():
    import tensorflow as tf

    layer = GRU(UNITS)
    layer.build((None, None, DIM))
    weight = layer.cell.recurrent_kernel.value
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            loss = tf.reduce_sum(layer(random_array((BATCH, LENGTH, DIM), 1), training=True) ** 2)
        gradient = inner.gradient(loss, weight)
    with pytest.raises(LookupError, match="first derivatives only"):
        outer.gradient(gradient, weight)


def stack(dtype="float32"):
    return [keras.layers.GRUCell(DIM, dtype=dtype), MaskedInputCell(keras.layers.LSTMCell(UNITS, dtype=dtype), DIM)]


DECODERS = {
    "gru": (lambda: keras.layers.GRUCell(UNITS), True),
    "lstm": (lambda: keras.layers.LSTMCell(UNITS), True),
    "stack with masks": (stack, True),
    "deep": (lambda: layers.DeepTransitionCell(keras.layers.GRUCell(UNITS), num_transitions=2), True),
    "simple": (lambda: keras.layers.SimpleRNNCell(UNITS), False),
}
CELLS = {
    "bahdanau": lambda cell: layers.RecurrentAttentionCell(cell, layers.AdditiveAttention(8), memory_dim=SIZE),
    "conditional": lambda cell: layers.ConditionalAttentionCell(
        cell, layers.AdditiveAttention(8), memory_dim=SIZE, context_cell=type(cell).from_config(cell.get_config())
    ),
    "luong": lambda cell: layers.LuongAttentionCell(cell, layers.AdditiveAttention(8), memory_dim=SIZE),
    "without feeding": lambda cell: layers.LuongAttentionCell(
        cell, layers.AdditiveAttention(8), memory_dim=SIZE, attentional_dim=9, input_feeding=False
    ),
    "local": lambda cell: layers.LuongAttentionCell(
        cell, layers.LocalAttention(2, "predictive", layers.scores.GeneralScore()), memory_dim=SIZE
    ),
}
ORDERS = [
    *((inner, kind) for inner in DECODERS for kind in CELLS if kind != "conditional"),
    *((inner, "conditional") for inner in ("gru", "deep", "simple")),
]
FAST = [("gru", "conditional"), ("stack with masks", "luong")]


@on_tensorflow
@pytest.mark.parametrize("order", nightly_unless(FAST.__contains__, ORDERS), ids="-".join)
def test_decoders_are_those_of_keras_loops(order, loops, monkeypatch):
    inner, kind = order
    make, deferred = DECODERS[inner]
    decoder = layers.AttentionRNN(CELLS[kind](make()))
    inputs = {"inputs": random_array((BATCH, LENGTH, DIM), 1), "memory": random_array((BATCH, SIZE, SIZE), 2)}
    decoder.build(*(each.shape for each in inputs.values()))
    randomize(decoder)
    variables = [keras.Variable(each) for each in inputs.values()]
    memory_mask = ops.convert_to_tensor(random_mask((BATCH, SIZE), 3))
    states = [
        ops.convert_to_tensor(random_array((BATCH, size), 4 + number))
        for number, size in enumerate(decoder.cell.inner_state_sizes)
    ]

    def call():
        return decoder(
            *(ops.convert_to_tensor(each) for each in variables),
            initial_state=states,
            memory_mask=memory_mask,
            return_attention_scores=kind != "luong",
            return_state=True,
            training=True,
        )

    watched = [*variables, *decoder.trainable_variables]
    ours = results_and_gradients(call, watched)
    assert bool(loops) == deferred
    monkeypatch.setattr(attention_rnn, "defers_weight_gradients", lambda: False)
    count = len(loops)
    same(ours, results_and_gradients(call, watched))
    assert len(loops) == count


@on_tensorflow
def test_masked_steps_of_decoders_take_the_loop_of_keras(loops):
    decoder = layers.AttentionRNN(CELLS["luong"](keras.layers.GRUCell(UNITS)))
    mask = random_mask((BATCH, LENGTH), 3)
    outputs = decoder(
        random_array((BATCH, LENGTH, DIM), 1), random_array((BATCH, SIZE, SIZE), 2), mask=mask, training=True
    )
    assert not loops and not to_numpy(outputs)[~mask].any()


@on_tensorflow
def test_cells_of_another_dtype_take_the_loop_of_keras(loops):
    cell = layers.LuongAttentionCell(
        keras.layers.GRUCell(UNITS, dtype="float32"),
        layers.AdditiveAttention(8, dtype="mixed_bfloat16"),
        memory_dim=SIZE,
        dtype="mixed_bfloat16",
    )
    decoder = layers.AttentionRNN(cell, dtype="mixed_bfloat16")
    outputs = decoder(random_array((BATCH, LENGTH, DIM), 1), random_array((BATCH, SIZE, SIZE), 2), training=True)
    assert not loops and tuple(outputs.shape) == (BATCH, LENGTH, UNITS)
