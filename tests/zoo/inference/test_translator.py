"""Models together with decoding: source ids in, target ids out."""

import functools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import zoo
from zoo.decoding_options import TranslationOptions
from zoo.errors import InputError
from zoo.inference.translator import Translator
from zoo.vocabulary import END, PAD, START

V = 13
SOURCE = np.array([[5, 7, 11, 4, 2], [9, 2, 0, 0, 0], [4, 4, 2, 0, 0]], "int32")
SMALL = {
    "rnnsearch": {"embedding_dim": 7, "units": 5, "attention_units": 11, "readout_units": 3},
    "transformer_tiny": {"num_layers": 1, "model_dim": 6, "intermediate_dim": 11, "num_heads": 3},
}


@pytest.fixture(scope="module", params=SMALL)
def model(request):
    model = zoo.create_model(request.param, source_vocab_size=V, target_vocab_size=V, **SMALL[request.param])
    chance = np.random.default_rng(3)
    model.set_weights([chance.uniform(-1.0, 1.0, weight.shape) for weight in model.weights])
    return model


def numpy(outputs):
    return {name: ops.convert_to_numpy(value) for name, value in outputs.items()}


@functools.cache
def graph(model, **options):
    """Returns a translator as a graph for sources of any size, as in an export."""
    signature = [{"source": tf.TensorSpec([None, None], tf.int32)}]
    function = tf.function(Translator(model, TranslationOptions(**options)), input_signature=signature, autograph=False)
    return lambda source: numpy(function({"source": tf.constant(source)}))


@functools.cache
def forward(model):
    """Returns the model under teacher forcing as a graph."""
    ids = tf.TensorSpec([None, None], tf.int32)
    return tf.function(model, input_signature=[{"source": ids, "target": ids}], autograph=False)


def log_probabilities(model, source, ids):
    """Returns the log probabilities [L, V] under teacher forcing of one row, with start and padding ruled out."""
    target = np.array([[START, *ids[:-1]]], "int32")
    logits = ops.convert_to_numpy(forward(model)({"source": source[None], "target": target}))[0]
    logits[:, [PAD, START]] = -np.inf
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def without_padding(ids):
    end = np.flatnonzero(ids == END)
    length = end[0] + 1 if len(end) else np.sum(ids != PAD)
    assert not np.any(ids[length:]) and np.all(ids[:length] > START)
    return ids[:length]


def test_greedy_takes_the_best_of_teacher_forcing(model):
    outputs = graph(model, max_length=11)(SOURCE)
    assert outputs["ids"].shape == (3, 1, 11) and outputs["log_prob"].dtype == np.float32
    for row in range(3):
        ids = without_padding(outputs["ids"][row, 0])
        scores = log_probabilities(model, SOURCE[row], ids)
        np.testing.assert_array_equal(ids, scores.argmax(axis=-1))
        np.testing.assert_allclose(outputs["log_prob"][row, 0], scores.max(axis=-1).sum(), atol=1e-4)
        assert ids[-1] == END or len(ids) == 11


def test_beams_are_scored_as_in_teacher_forcing_and_sorted(model):
    outputs = graph(model, beam_size=3)(SOURCE)
    for row in range(3):
        penalised = []
        for padded, log_prob in zip(outputs["ids"][row], outputs["log_prob"][row], strict=True):
            ids = without_padding(padded)
            scores = log_probabilities(model, SOURCE[row], ids)
            np.testing.assert_allclose(scores[np.arange(len(ids)), ids].sum(), log_prob, atol=1e-4)
            penalised.append(log_prob / ((5 + len(ids)) / 6) ** 0.6)
        assert penalised == sorted(penalised, reverse=True)
        assert len({tuple(ids) for ids in outputs["ids"][row]}) == 3


@pytest.mark.parametrize("options", [{"max_length": 11}, {"beam_size": 3}], ids=str)
def test_a_batch_is_its_rows_one_by_one(model, options):
    translate = graph(model, **options)
    together = translate(SOURCE)
    for row in range(3):
        length = int(np.sum(SOURCE[row] != PAD))
        alone = translate(SOURCE[row : row + 1, :length])
        room = min(2 * length + 10, options.get("max_length", 256))
        assert alone["ids"].shape == (1, options.get("beam_size", 1), room)
        np.testing.assert_array_equal(together["ids"][row, :, :room], alone["ids"][0])
        assert not np.any(together["ids"][row, :, room:])
        np.testing.assert_allclose(together["log_prob"][row], alone["log_prob"][0], rtol=1e-4)


OPTIONS = [{"max_length": 11}, {"beam_size": 3}, {"max_length": 2, "no_repeat_ngram": 4}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_graph_agrees_with_eager(model, options):
    source = SOURCE[1:, :2]
    assert_alike(
        graph(model, **options)(source), numpy(Translator(model, TranslationOptions(**options))({"source": source}))
    )


@pytest.mark.nightly
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_xla_agrees_with_graph(model, options):
    source = SOURCE[1:, :2]
    compiled = tf.function(Translator(model, TranslationOptions(**options), resizes=False), jit_compile=True)
    assert_alike(numpy(compiled({"source": tf.constant(source)})), graph(model, **options)(source))


def assert_alike(outputs, expected):
    np.testing.assert_array_equal(outputs["ids"], expected["ids"])
    np.testing.assert_allclose(outputs["log_prob"], expected["log_prob"], rtol=1e-4)


def test_limits():
    # A model that never ends: weights of zero, and a bias that prefers one symbol.
    model = zoo.create_model("rnnsearch", source_vocab_size=V, target_vocab_size=V, **SMALL["rnnsearch"])
    model.set_weights([np.zeros(weight.shape) for weight in model.weights])
    model.output_dense.bias.assign(10.0 * np.eye(V)[7])
    for max_length, expected in ((256, [20, 14, 16]), (15, [15, 14, 15]), (1, [1, 1, 1])):
        for beam_size in (1, 2) if max_length < 256 else (1,):
            search = Translator(model, TranslationOptions(beam_size=beam_size, max_length=max_length))
            ids = numpy(search({"source": SOURCE}))["ids"]
            assert ids.shape[-1] == min(max_length, 20)
            assert np.sum(ids[:, 0] == 7, axis=-1).tolist() == expected


def test_an_empty_batch_is_an_empty_result(model):
    for options, shape in (({"max_length": 11}, (0, 1, 11)), ({"beam_size": 3}, (0, 3, 14))):
        outputs = graph(model, **options)(np.zeros((0, 2), "int32"))
        assert outputs["ids"].shape == shape and outputs["log_prob"].shape == shape[:2]


def test_the_best_alone(model):
    every = graph(model, beam_size=3, max_length=9)(SOURCE)
    best = graph(model, beam_size=3, max_length=9, nbest=1)(SOURCE)
    np.testing.assert_array_equal(best["ids"], every["ids"][:, :1])
    np.testing.assert_allclose(best["log_prob"], every["log_prob"][:, :1], rtol=1e-5)


def test_mixed_precision_scores_are_float32():
    sizes = {"source_vocab_size": V, "target_vocab_size": V}
    model = zoo.create_model("rnnsearch", dtype="mixed_bfloat16", **sizes, **SMALL["rnnsearch"])
    translator = Translator(model, TranslationOptions(beam_size=2, max_length=3))
    assert keras.backend.standardize_dtype(translator({"source": SOURCE})["log_prob"].dtype) == "float32"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"beam_size": 0},
            "`beam_size` must be a positive integer. Received: beam_size=0.",
        ),
        ({"beam_size": 7}, "at most half the vocabulary of 13. Received: beam_size=7."),
        ({"beam_size": 2, "nbest": 3}, "`nbest` must be from 1 to `beam_size`, 2. Received: nbest=3."),
        ({"beam_size": 2, "nbest": 0}, "`nbest` must be a positive integer. Received: nbest=0."),
        ({"max_length": 0}, "`max_length` must be a positive integer. Received: max_length=0."),
        (
            {"length_penalty": -0.1},
            "`length_penalty` must be a finite number of 0 or more. Received: length_penalty=-0.1.",
        ),
        (
            {"length_penalty": math.nan},
            "`length_penalty` must be a finite number of 0 or more. Received: length_penalty=nan.",
        ),
        (
            {"coverage_penalty": math.inf},
            "`coverage_penalty` must be a finite number of 0 or more. Received: coverage_penalty=inf.",
        ),
    ],
)
def test_errors(model, options, message):
    with pytest.raises(InputError, match=message):
        Translator(model, TranslationOptions(**options))
