"""The recurrent sequence-to-sequence models: their reading orders, starts, dropout and windows."""

import keras
import numpy as np
import pytest
from support.model_cases import case
from support.models import numpy
from support.seq2seq_models import SMALL, SOURCE_TOKENS, B, S, T, batch, create, logits
from support.tiers import nightly_unless

from zoo.decoding_options import TranslationOptions
from zoo.errors import InputError
from zoo.inference.translator import Translator
from zoo.layers.core.dropout import Dropout
from zoo.models.seq2seq.recurrent_layers import NOISE, MaskedInputCell, OneWayEncoder, StartStates
from zoo.vocabulary import PAD

LUONG = SMALL["luong_dot"][0]
ENCDEC = SMALL["rnn_encdec"][0]
LENGTHS = (5, 2, 3)  # of the sources of `batch`

tensorflow_only = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="written with TensorFlow")


def rows(source):
    """Returns each row of ids without its padding."""
    return [row[row != PAD] for row in source]


def backwards(source):
    """Returns sources with the tokens of each row in reverse order, padding still behind them."""
    result = np.full_like(source, PAD)
    for row, ids in enumerate(rows(source)):
        result[row, : len(ids)] = ids[::-1]
    return result


@pytest.mark.parametrize("cell_type", ["gru", "lstm"])
def test_a_reversed_encoder_reads_each_row_from_its_end(cell_type):
    forward, reverse = (OneWayEncoder(7, 2, cell_type, reverse=reverse) for reverse in (False, True))
    inputs = np.random.default_rng(1).normal(size=(B, S, 3)).astype("float32")
    mask = np.arange(S) < np.array(LENGTHS)[:, None]
    for encoder in (forward, reverse):
        encoder.build((None, None, 3))
    reverse.set_weights(forward.get_weights())
    outputs, states = reverse(inputs, mask=mask, return_state=True)
    assert len(states) == (2 if cell_type == "gru" else 4)
    for row, length in enumerate(LENGTHS):
        expected, final = forward(inputs[row : row + 1, :length][:, ::-1], return_state=True)
        np.testing.assert_allclose(numpy(outputs)[row, :length], numpy(expected)[0, ::-1], atol=1e-6)
        for state, reference in zip(states, final, strict=True):
            np.testing.assert_allclose(numpy(state)[row], numpy(reference)[0], atol=1e-6)
    # The top state stands at the first place, where the reading ends.
    np.testing.assert_allclose(numpy(outputs)[:, 0], numpy(states[-1 if cell_type == "gru" else -2]), atol=1e-6)


@pytest.mark.nightly
def test_alignments_are_in_the_order_of_the_source():
    reverse, forward = (create("luong_dot", {**LUONG, "reverse_source": reverse}) for reverse in (True, False))
    source, target = batch()
    expected, mirrored = map(numpy, forward.decode(target, forward.encode(backwards(source))))
    found, weights = map(numpy, reverse.decode(target, reverse.encode(source)))
    np.testing.assert_allclose(found, expected, atol=2e-6)
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(weights[row, ..., :length], mirrored[row, ..., :length][..., ::-1], atol=1e-6)
    assert np.abs(weights - mirrored).max() > 0.01


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.nightly), 1], ids=["summary", "states"])
def test_encoders_without_attention_read_in_both_orders(number):
    options = SMALL["rnn_encdec"][number]
    reverse, forward = (create("rnn_encdec", {**options, "reverse_source": reverse}) for reverse in (True, False))
    source, target = batch()
    expected = logits(forward, backwards(source), target)
    np.testing.assert_allclose(logits(reverse, source, target), expected, atol=2e-6)
    assert np.abs(logits(forward, source, target) - expected).max() > 0.01


@pytest.mark.parametrize(
    "starting",
    nightly_unless(
        ("rnn_encdec", "gru").__eq__,
        [(name, cell) for name in ("rnn_encdec", "rnnsearch", "luong_dot") for cell in ("gru", "lstm")],
    ),
)
def test_starts(starting):
    name, cell_type = starting
    small = {**SMALL[name][0], "cell_type": cell_type, "dropout": 0.0}
    source, _ = batch()
    starts, trained = {}, {}
    for kind in ("encoder", "zero", "learned", "random"):
        model = create(name, {**small, "start_state": kind})
        starts[kind], trained[kind] = (
            np.stack([numpy(state) for state in model.encode(source, training=training)["start"]])
            for training in (None, True)
        )
        if kind == "learned":
            weight = numpy(model.start.states)
    assert starts["encoder"].shape == (small.get("num_layers", 1) * (1 + (cell_type == "lstm")), B, small["units"])
    assert np.ptp(starts["encoder"], axis=1).max(axis=-1).min() > 0.01  # each state depends on the source
    assert not np.any(starts["zero"])
    assert np.ptp(starts["random"], axis=1).max() == 0 < np.abs(starts["random"]).min()  # the same for all
    np.testing.assert_array_equal(starts["learned"], np.broadcast_to(weight[:, None], starts["learned"].shape))
    # In training the encoder has a loop of its own, which rounds otherwise.
    np.testing.assert_allclose(trained["encoder"], starts["encoder"], atol=1e-6)
    for kind in ("zero", "learned", "random"):
        np.testing.assert_array_equal(trained[kind] == starts[kind], kind != "random")


def test_random_starts_of_models_from_before_the_seed_are_zero():
    model = create("luong_dot", {**LUONG, "start_state": "random", "start_seed": None})
    config = model.get_config()
    del config["start_seed"]
    assert type(model).from_config(config).start_seed is None


def test_luongs_decoder_starts_from_the_encoders_final_states():
    model = create("luong_dot", LUONG)
    source, _ = batch()
    _, states = model.encoder(model.source_embedding(source), mask=source != PAD, return_state=True)
    inner = model.initial_state(model.encode(source), T)["inner"]
    # h and c of both layers, the upper with a mask of ones behind them; then h̃, which is zero.
    expected = [*states, np.ones((B, 6)), np.zeros((B, 7))]
    assert len(inner) == len(expected)
    for state, reference in zip(inner, expected, strict=True):
        np.testing.assert_allclose(numpy(state), numpy(reference), atol=1e-6)


@pytest.mark.parametrize("cell_type", ["gru", "lstm"])
def test_the_summary_is_made_of_the_last_output(cell_type):
    model = create("rnn_encdec", {**ENCDEC, "num_layers": 2, "cell_type": cell_type})
    source, _ = batch()
    outputs = numpy(model.encoder(model.source_embedding(source), mask=source != PAD))
    last = outputs[np.arange(B), np.array(LENGTHS) - 1]
    memory = model.encode(source)
    np.testing.assert_allclose(numpy(memory["summary"]), numpy(model.summary_dense(last)), atol=1e-6)
    expected = numpy(model.start_dense(memory["summary"]))
    np.testing.assert_allclose(np.concatenate([numpy(state) for state in memory["start"]], -1), expected, atol=1e-6)


def test_random_starts_are_drawn_for_each_sentence_in_training_only():
    def drawn(rows, training=None, **options):
        return np.stack([numpy(state) for state in StartStates(3, 500, "random", **options)(rows, training=training)])

    rows, layer = np.zeros((2, 1)), StartStates(3, 500, "random", seed=1, inference_seed=3)
    first, second = (np.stack([numpy(state) for state in layer(rows, training=True)]) for _ in range(2))
    draws = np.concatenate([first, second], axis=1).reshape(12, 500)
    np.testing.assert_allclose(draws.std(axis=1), NOISE, rtol=0.15)
    assert np.abs(np.corrcoef(draws) - np.eye(12)).max() < 0.2
    outside = drawn(rows, inference_seed=3)
    np.testing.assert_array_equal(np.stack([numpy(state) for state in layer(rows)]), outside)
    np.testing.assert_array_equal(outside[:, 0], outside[:, 1])  # the same for all sentences
    np.testing.assert_allclose(outside[:, 0].std(axis=1), NOISE, rtol=0.15)
    assert np.abs(drawn(rows, inference_seed=5) - outside).max() > NOISE
    assert not np.any(drawn(rows, inference_seed=None))


def test_layers_have_configs():
    for layer in (
        StartStates(2, 3, "learned", seed=5),
        OneWayEncoder(3, 2, "gru", dropout=0.25, reverse=True),
        MaskedInputCell(keras.layers.LSTMCell(3), 5),
    ):
        assert type(layer).from_config(layer.get_config()).get_config() == layer.get_config()


def test_a_masked_cell_drops_its_inputs_only():
    inner = keras.layers.LSTMCell(3)
    cell = MaskedInputCell(inner, 5)
    cell.build((2, 5))
    chance = np.random.default_rng(2)
    inputs, h, c = (chance.normal(size=(2, size)).astype("float32") for size in (5, 3, 3))
    mask = np.array([[2.0, 0.0, 2.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0, 1.0]], "float32")
    output, states = cell(inputs, [h, c, mask])
    expected, expected_states = inner(inputs * mask, [h, c])
    np.testing.assert_array_equal(numpy(output), numpy(expected))
    for state, reference in zip(states, [*expected_states, mask], strict=True):
        np.testing.assert_array_equal(numpy(state), numpy(reference))
    assert cell.state_size == [3, 3, 5] and cell.output_size == 3


def test_dropout_acts_where_it_should(monkeypatch):
    drop, found = Dropout.call, []

    def dropped(self, inputs, training=False):
        found.append((inputs.shape[-1], self.rate))
        return drop(self, inputs, training=training)

    for name, number, sizes in (
        # Embeddings of the source, annotations, embeddings of the target, readout.
        ("rnnsearch", 0, [7, 10, 7, 3]),
        # Embeddings, between the layers and the summary; embeddings, between the layers, readout.
        ("rnn_encdec", 2, [7, 5, 5, 7, 5, 3]),
        # Embeddings, between the layers, annotations; embeddings, a mask between the layers, what the states become.
        ("luong_dot", 0, [7, 6, 6, 7, 6, 7]),
    ):
        model, inputs, found[:] = case(name, number).model, case(name, number).inputs, []
        with monkeypatch.context() as patch:
            patch.setattr(Dropout, "call", dropped)
            model(inputs, training=True)
        assert found == [(size, 0.25) for size in sizes], name


@tensorflow_only
def test_dropout_between_the_decoders_layers_is_the_same_at_all_steps():
    import tensorflow as tf

    model = create("luong_dot", {**LUONG, "units": 61, "dropout": 0.5})
    source, target = batch()
    kernel = model.cell.cell.cells[1].cell.kernel
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model({"source": source[:1], "target": target[:1]}, training=True))
    dropped = np.all(tape.gradient(loss, kernel.value).numpy() == 0, axis=1)  # units of the lower layer
    assert 15 < np.sum(dropped) < 46


@pytest.mark.nightly
def test_monotonic_windows_follow_the_source():
    # The window counts places of the source as it is given, whatever the encoder's order.
    for reverse in (False, True):
        model = create("luong_local_m", {**LUONG, "window": 1, "reverse_source": reverse})
        source, target = batch()
        weights = numpy(model.attention(source, target))[:, 0, 0]
        for row, length in enumerate(LENGTHS):
            near = np.abs(np.arange(T)[:, None] - np.arange(S)) <= 1
            seen = near & (target[row] != PAD)[:, None] & (np.arange(S) < length)
            np.testing.assert_array_equal(weights[row] > 0, seen)
            np.testing.assert_allclose(weights[row].sum(axis=1), seen.any(axis=1), atol=1e-6)


def test_predicted_windows_are_narrow():
    model = create("luong_local_p", {**LUONG, "window": 1})
    source, target = batch()
    weights = numpy(model.attention(source, target))[:, 0, 0]
    seen = weights > 0
    assert seen.sum(axis=-1).max() <= 3 and np.all(seen.any(axis=-1) == (target != PAD))
    sums = weights.sum(axis=-1)[target != PAD]
    assert np.all(sums < 1) and np.all(sums > 0.1)


@pytest.mark.nightly
def test_location_scores_do_not_look_at_the_source():
    model = create("luong_location", {**LUONG, "max_length": 5, "start_state": "zero", "input_feeding": False})
    (source, target), (other, _) = batch(0), batch(1)
    assert np.any(source != other)
    np.testing.assert_array_equal(numpy(model.attention(source, target)), numpy(model.attention(other, target)))


@pytest.mark.nightly
def test_input_feeding_tells_the_decoder_where_it_looked():
    # Queries alone say where to look, here; only by feeding do they know what was found there.
    options = {**LUONG, "start_state": "zero", "score": "location", "max_length": 5}
    (source, target), (other, _) = batch(0), batch(1)
    fed = create("luong_dot", {**options, "input_feeding": True})
    first, second = (numpy(fed.attention(ids, target))[0, 0, 0] for ids in (source, other))
    np.testing.assert_allclose(first[0], second[0], atol=1e-6)
    assert np.abs(first[1:] - second[1:]).max() > 1e-3


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.nightly), 1], ids=["summary", "states"])
def test_without_attention(number):
    model = case("rnn_encdec", number).model
    source, target = batch()
    assert not model.attends
    assert model.decode(target, model.encode(source))[1] is None
    with pytest.raises(InputError, match="RNNEncoderDecoder.*rnnsearch"):
        model.attention(source, target)
    before = case("rnn_encdec", number).expected[0]
    for place in (0, S - 1):  # all that it knows of the source goes through the same vectors, from both ends
        changed = source.copy()
        changed[0, place] = 4 + (changed[0, place] - 3) % (SOURCE_TOKENS - 4)
        assert np.all(np.any(logits(model, changed, target)[0] != before, axis=-1))


def test_all_that_a_decoder_without_attention_knows_has_a_fixed_size():
    for number in range(len(SMALL["rnn_encdec"])):
        memory = case("rnn_encdec", number).model.encode(batch()[0])
        assert {len(state.shape) for state in keras.tree.flatten(memory)} == {2}


@tensorflow_only
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["rnn_encdec", "luong_location", "luong_local_m"])
def test_graphs_of_unknown_sizes(name):
    import tensorflow as tf

    model = create(name, SMALL[name][-2 if name == "rnn_encdec" else 0])
    translator = Translator(model, TranslationOptions(beam_size=2, max_length=5))
    ids = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[ids, ids])
    def forward(source, target):
        return model({"source": source, "target": target}), model.decode(target, model.encode(source))

    translate = tf.function(translator, input_signature=[{"source": ids}], autograph=False)
    source, target = batch()
    for width in (S, S - 1):
        for result in (forward(source[:, :width], target)[0], forward(source[:, :width], target)[1][0]):
            expected = logits(model, source[:, :width], target)
            np.testing.assert_allclose(result, expected, atol=2e-6)
    outputs, expected = translate({"source": source}), translator({"source": source})
    np.testing.assert_array_equal(outputs["ids"], expected["ids"])
    np.testing.assert_allclose(outputs["log_prob"], expected["log_prob"], atol=1e-5)
