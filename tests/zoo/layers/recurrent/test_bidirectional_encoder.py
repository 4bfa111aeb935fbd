"""The bidirectional encoder."""

import keras
import numpy as np
import pytest
from support.layers.contract import arrays, build, random_array, tensorflow_only, to_numpy
from support.layers.recurrent import BY_NAME, assert_close, step_reference

from zoo import layers


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
                    own = step_reference(one_way.cell, inputs[j], own)
                    found[way, j] = own[0]
            states.append(own)
        inputs = np.concatenate(found, axis=-1)
    pairs = [zip(states[i], states[i + 1], strict=True) for i in range(0, len(states), 2)]
    return inputs, [np.concatenate(pair) for each in pairs for pair in each]


def test_a_text_of_nothing():
    cases = [("gru", {}), ("gru", {"mask": np.ones((2, 0), bool)}), ("lstm", {"segments": np.ones((2, 0), "int32")})]
    for cell_type, options in cases:
        layer = layers.BidirectionalEncoder(3, num_layers=2, cell_type=cell_type)
        for training in (False, True):
            output, states = layer(np.ones((2, 0, 5), "float32"), return_state=True, training=training, **options)
            assert output.shape == (2, 0, 6)
            assert [state.shape for state in states] == [(2, 6)] * (2 if cell_type == "gru" else 4)
            assert not any(np.any(to_numpy(state)) for state in states)


@pytest.mark.nightly
@tensorflow_only("other backends have no unknown sizes")
@pytest.mark.parametrize("options", [(), ("mask",), ("segments",)], ids=str)
def test_a_text_that_turns_out_to_be_nothing(options):
    import tensorflow as tf

    layer, signature = layers.BidirectionalEncoder(3), [tf.TensorSpec((None, None, 5))]

    @tf.function(input_signature=signature)
    def call(inputs):
        given = {"mask": tf.ones(tf.shape(inputs)[:2], "bool"), "segments": tf.ones(tf.shape(inputs)[:2], "int32")}
        return layer(inputs, return_state=True, **{name: given[name] for name in options})

    for length in (0, 4):
        inputs = random_array((2, length, 5), 1)
        for one, other in zip(
            tf.nest.flatten(call(inputs)), tf.nest.flatten(layer(inputs, return_state=True)), strict=True
        ):
            assert one.shape == other.shape
            assert_close(one, to_numpy(other))


@pytest.mark.parametrize("name", ["bidirectional_encoder_gru", "bidirectional_encoder_lstm"])
def test_encoder(name):
    layer, inputs = build(BY_NAME[name]), arrays(BY_NAME[name])["inputs"]
    mask = np.array([[True] * 5, [True, False, True, True, False]])
    outputs, states = found = layer(inputs, mask=mask, return_state=True)
    assert len(states) == (1 if layer.cell_type == "gru" else 4)
    for b in range(2):
        expected, expected_states = _gru_encoder(layer, inputs[b], mask[b])
        assert_close(outputs[b], expected)
        for state, reference in zip(states, expected_states, strict=True):
            assert_close(state[b], reference)
    for room in (7, 11):
        padded = np.full((2, room, 11), 1e4, "float32")
        padded[:, :5] = inputs
        more, same = layer(padded, mask=np.pad(mask, ((0, 0), (0, room - 5))), return_state=True)
        np.testing.assert_array_equal(to_numpy(more)[:, :5], to_numpy(outputs))
        assert not np.any(to_numpy(more)[:, 5:])
        for state, reference in zip(same, states, strict=True):
            np.testing.assert_array_equal(to_numpy(state), to_numpy(reference))
    _check_segments(layer, inputs, mask, found)


def _check_segments(layer, inputs, mask, whole):
    """Checks that segments are read by themselves, and that one segment is the whole."""
    segments = np.array([[0, 0, 1, 1, 1], [3, 4, 4, 3, 3]])
    outputs = to_numpy(layer(inputs, mask=mask, segments=segments))
    for b in range(2):
        edges = [0, *(np.flatnonzero(np.diff(segments[b])) + 1), 5]
        for first, last in zip(edges, edges[1:], strict=False):
            expected, _ = _gru_encoder(layer, inputs[b, first:last], mask[b, first:last])
            assert_close(outputs[b, first:last], expected)
    found = layer(inputs, mask=mask, segments=np.zeros((2, 5), "int32"), return_state=True)
    for result, expected in zip(keras.tree.flatten(found), keras.tree.flatten(whole), strict=True):
        assert_close(result, to_numpy(expected))


def test_encoder_by_hand():
    # All weights zero but the bias of the candidate: h = (h + 1) / 2 at every real position.
    layer = layers.BidirectionalEncoder(1)
    layer.build((2, 3, 1))
    bias = np.array([[0.0, 0.0, 99.0], [0.0, 0.0, 0.0]])
    layer.set_weights([np.zeros((1, 3)), np.zeros((1, 3)), bias] * 2)
    mask = np.array([[True, True, True], [True, True, False]])
    outputs, states = layer(np.ones((2, 3, 1), "float32"), mask=mask, return_state=True)
    assert_close(outputs[0], [[0.5, 0.875], [0.75, 0.75], [0.875, 0.5]])
    assert_close(outputs[1], [[0.5, 0.75], [0.75, 0.5], [0.0, 0.0]])
    assert_close(states[0], [[0.875, 0.875], [0.75, 0.75]])


@pytest.mark.nightly
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


def test_encoder_errors():
    with pytest.raises(ValueError, match="units.*0"):
        layers.BidirectionalEncoder(0)
    with pytest.raises(ValueError, match="num_layers.*0"):
        layers.BidirectionalEncoder(3, num_layers=0)
    with pytest.raises(ValueError, match="cell_type.*rnn"):
        layers.BidirectionalEncoder(3, cell_type="rnn")
    with pytest.raises(ValueError, match="mask.*float"):
        layers.BidirectionalEncoder(3)(np.zeros((2, 3, 5), "float32"), mask=np.ones((2, 3)))
