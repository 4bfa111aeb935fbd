"""`AttentionRNN`: the cells over whole sequences."""

import keras
import numpy as np
import pytest
from keras import ops
from support.every import every
from support.layers.contract import arrays, build, random_array, random_mask, tensorflow_only, to_numpy
from support.layers.recurrent import BY_NAME, assert_close, every_loop, run_reference

from zoo import layers


@every_loop
def test_loops(case):
    layer, inputs, mask = build(case), arrays(case), random_mask((2, 5))
    initial = [random_array((2, size), [size, 3]) for size in layer.cell.inner_state_sizes]
    options = {"return_attention_scores": True, "return_state": True}
    whole = layer(**inputs, initial_state=initial, memory_mask=mask, **options)
    output, weights, states = whole
    for b in range(2):
        own = [state[b] for state in initial]
        expected = run_reference(layer.cell, inputs["inputs"][b], own, inputs["memory"][b], mask[b])
        assert_close(output[b], expected[0])
        assert_close(weights[b], np.moveaxis(expected[1], 0, -2))
        assert len(states) == len(expected[2])
        for state, reference in zip(states, expected[2], strict=True):
            assert_close(state[b], reference)
    _check_that_it_goes_on(layer, inputs, initial, whole, memory_mask=mask, **options)
    _check_masked_steps(layer, inputs, **options)
    _check_sizes_of_zero(layer, **options)


def _check_that_it_goes_on(layer, inputs, initial, whole, memory_mask, **options):
    """Checks that two calls, the second from the states of the first, are as one."""
    projected = layer.cell.project_memory(inputs["memory"], memory_mask)
    options["memory_mask"] = memory_mask
    first = layer(inputs["inputs"][:, :2], projected, initial_state=initial, **options)
    second = layer(inputs["inputs"][:, 2:], projected, initial_state=first[2], **options)
    for part, axis in ((0, 1), (1, -2)):
        joined = ops.concatenate([first[part], second[part]], axis=axis)
        assert_close(joined, to_numpy(whole[part]), atol=2e-6)
    for state, reference in zip(second[2], whole[2], strict=True):
        assert_close(state, to_numpy(reference), atol=2e-6)


def _check_masked_steps(layer, inputs, **options):
    """Checks that masked steps are left out."""
    mask = np.array([[True, False, True], [True, True, False]])
    output, weights, states = layer(**inputs, mask=mask, **options)
    assert not np.any(to_numpy(output)[~mask]) and not np.any(np.moveaxis(to_numpy(weights), -2, 1)[~mask])
    for b in range(2):
        short = layer(inputs["inputs"][b : b + 1, mask[b]], inputs["memory"][b : b + 1], **options)
        assert_close(output[b][mask[b]], to_numpy(short[0])[0], atol=2e-6)
        assert_close(ops.moveaxis(weights[b], -2, 0)[mask[b]], np.moveaxis(to_numpy(short[1])[0], -2, 0), atol=2e-6)
        for state, reference in zip(states, short[2], strict=True):
            assert_close(state[b], to_numpy(reference)[0], atol=2e-6)


def _check_sizes_of_zero(layer, **options):
    """Checks calls without steps, without a memory, and without both."""
    heads = (layer.cell.attention.num_heads,) if layer.cell.attention.has_heads else ()
    initial = [random_array((2, size), 3) for size in layer.cell.inner_state_sizes]
    for steps, keys, training in ((0, 5, True), (3, 0, False), (0, 0, False)):
        inputs, memory = random_array((2, steps, 11), 1), random_array((2, keys, 13), 2)
        output, weights, states = layer(inputs, memory, initial_state=initial, training=training, **options)
        assert output.shape == (2, steps, layer.cell.step_size)
        assert weights.shape == (2, *heads, steps, keys)
        if steps == 0:
            for state, given in zip(states, initial, strict=False):
                assert_close(state, given)


@pytest.mark.nightly
@tensorflow_only("other backends have no unknown sizes")
@pytest.mark.parametrize("name", ["attention_rnn", "attention_rnn_with_heads"])
def test_graphs_of_unknown_sizes(name):
    import tensorflow as tf

    loop, options = build(BY_NAME[name]), {"return_attention_scores": True, "return_state": True}
    signature = [tf.TensorSpec([None, None, size]) for size in (11, 13)]
    signature += [tf.TensorSpec([None, None], tf.bool)] * 2

    @tf.function(input_signature=signature)
    def masked(inputs, memory, mask, memory_mask):
        return loop(inputs, memory, mask=mask, memory_mask=memory_mask, **options)

    @tf.function(input_signature=signature)
    def unmasked(inputs, memory, _, memory_mask):
        return loop(inputs, memory, memory_mask=memory_mask, **options)

    for length, size in ((3, 7), (0, 5)):
        inputs, memory, memory_mask = (
            random_array((2, length, 11), 1),
            random_array((2, size, 13), 2),
            random_mask((2, size)),
        )
        expected = loop(inputs, memory, memory_mask=memory_mask, **options)
        for function in (masked, unmasked):
            found = function(inputs, memory, np.ones((2, length), bool), memory_mask)
            for result, reference in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
                assert result.shape == reference.shape
                assert_close(result, to_numpy(reference), atol=2e-6)


@pytest.mark.nightly
@tensorflow_only("other backends have no unknown sizes")
def test_the_recurrent_layer_of_keras_in_graphs_of_unknown_sizes():
    import tensorflow as tf

    loop = build(BY_NAME["attention_rnn"])
    # `RNN` masks nothing here: it does not mask outputs of unknown width.
    cell = type(loop.cell).from_config({**loop.cell.get_config(), "return_attention_scores": True})
    rnn = keras.layers.RNN(cell, return_sequences=True)
    rnn.build((None, None, 11))
    cell.set_weights(loop.cell.get_weights())

    @tf.function(
        input_signature=[
            *(tf.TensorSpec([None, None, size]) for size in (11, 13)),
            tf.TensorSpec([None, None], tf.bool),
        ]
    )
    def run(inputs, memory, memory_mask):
        return cell.split_output(rnn(inputs, initial_state=cell.initial_states(memory, memory_mask)))

    inputs, memory, mask = random_array((2, 3, 11), 1), random_array((2, 7, 13), 2), random_mask((2, 7))
    expected = loop(inputs, memory, memory_mask=mask, return_attention_scores=True)
    for result, reference in zip(run(inputs, memory, mask), expected, strict=True):
        assert result.shape == reference.shape
        assert_close(result, to_numpy(reference), atol=2e-6)


def test_a_batch_of_nothing():
    kinds = {
        "heads": layers.MultiHeadAttention(2, 3),
        "local": layers.LocalAttention(window=2),  # it knows the number of its step
        "monotonic": layers.MonotonicAttention("additive"),
    }
    inputs, memory = np.ones((0, 2, 4), "float32"), np.ones((0, 7, 3), "float32")
    for kind, attention in kinds.items():
        layer = layers.AttentionRNN(layers.LuongAttentionCell(keras.layers.GRUCell(5), attention, memory_dim=3))
        output, weights = layer(inputs, memory, return_attention_scores=True)
        assert output.shape == (0, 2, 5)
        assert weights.shape == ((0, 2, 2, 7) if kind == "heads" else (0, 2, 7))


@pytest.mark.nightly
@tensorflow_only("XLA is TensorFlow's option")
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
        assert_close(result, reference.numpy())


@pytest.mark.nightly
@tensorflow_only("XLA is TensorFlow's option")
@every_loop
def test_training_under_xla(case):
    trained, given = [], list(arrays(case).values())
    for jit in (False, True):
        loop, symbolic = build(case), [keras.Input(array.shape[1:]) for array in given]
        model = keras.Model(symbolic, loop(*symbolic))
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse", jit_compile=jit)
        model.fit(given, np.ones(case.output, "float32"), epochs=2, verbose=0)
        trained.append([to_numpy(weight) for weight in loop.weights])
    for result, reference in zip(*trained, strict=True):
        assert_close(result, reference)


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
    assert_close(output, to_numpy(expected), atol=2e-6)


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

    def compare(self, query, key, visibility):
        distance = ops.abs(visibility.key_positions - visibility.query_positions[:, None])
        scores = -1e4 * ops.cast(distance, query.dtype)
        return ops.broadcast_to(scores, (ops.shape(query)[0], *ops.shape(scores)))

    def compute_output_shape(self, query_shape, value_shape=None):
        return (*query_shape[:-1], value_shape[-1])


@pytest.mark.parametrize(
    ("cell_class", "policy"),
    [(layers.RecurrentAttentionCell, "float32"), (layers.LuongAttentionCell, "mixed_bfloat16")],
    ids=["bahdanau", "luong"],
)
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
    np.testing.assert_array_equal(to_numpy(states[-1]), [[7, 0], [7, 0]])
    # bfloat16 cannot count these one by one.
    states[-1] = np.array([[253, 0], [253, 0]], "float32")
    _, weights, states = loop(inputs, memory, states, **options)
    np.testing.assert_array_equal(to_numpy(weights), np.roll(expected, 253, axis=-1))
    np.testing.assert_array_equal(to_numpy(states[-1]), [[4, 1], [4, 1]])
    assert len(loop.cell.initial_states(memory)) == len(loop.cell.state_size)


def test_masked_steps_count_in_every_row():
    inputs, memory = random_array((2, 5, 3), 1), random_array((2, 7, 4), 2)
    mask = np.array([[False, False, True, False, True], [True] * 5])
    with every() as failures:
        for attention in (layers.LocalAttention(1), layers.MultiHeadAttention(2, 3, positions=layers.ALiBiPositions())):
            with failures.of(type(attention).__name__):
                decoder = layers.AttentionRNN(layers.LuongAttentionCell(keras.layers.GRUCell(4), attention, 4))
                output, *states = decoder(inputs, memory, mask=mask, return_state=True)
                alone, *own = decoder(inputs[:1], memory[:1], mask=mask[:1], return_state=True)
                np.testing.assert_allclose(to_numpy(output)[:1], to_numpy(alone), atol=1e-6)
                for state, expected in zip(keras.tree.flatten(states), keras.tree.flatten(own), strict=True):
                    np.testing.assert_allclose(to_numpy(state)[:1], to_numpy(expected), atol=1e-6)
                assert not to_numpy(output)[~mask].any()
                whole = to_numpy(decoder(inputs, memory))
                np.testing.assert_allclose(to_numpy(output)[1], whole[1], atol=1e-6)
                later = to_numpy(decoder(inputs[:, 3:], memory, initial_state=keras.tree.flatten(states)))
                following = to_numpy(decoder(np.concatenate([inputs, inputs[:, 3:]], 1), memory))[1, 5:]
                np.testing.assert_allclose(later[1], following, atol=1e-6)


def test_local_attention():
    places = {}
    for alignment in ("monotonic", "predictive"):
        attention = layers.LocalAttention(1, alignment)
        loop = layers.AttentionRNN(layers.LuongAttentionCell(keras.layers.GRUCell(7), attention, memory_dim=13))
        inputs, memory = random_array((2, 3, 11), 1), random_array((2, 5, 13), 2)
        places[alignment] = to_numpy(loop(inputs, memory, return_attention_scores=True)[1]) > 0
    near = np.abs(np.arange(5) - np.arange(3)[:, None]) <= 1
    np.testing.assert_array_equal(places["monotonic"], np.broadcast_to(near, (2, 3, 5)))
    sums = places["predictive"].sum(-1)
    assert np.all((sums > 0) & (sums <= 3))


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
    assert_close(loop(inputs, memory, [state]), plain)
    trained = to_numpy(loop(inputs, memory, [state], training=True))
    assert np.all(np.isfinite(trained)) and not np.array_equal(plain, trained)
