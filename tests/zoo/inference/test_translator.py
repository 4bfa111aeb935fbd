"""Models together with decoding: source ids in, target ids out."""

import functools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support.every import every
from support.tiers import nightly_unless

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


@functools.cache
def created(name):
    model = zoo.create_model(name, source_vocab_size=V, target_vocab_size=V, **SMALL[name])
    chance = np.random.default_rng(3)
    model.set_weights([chance.uniform(-1.0, 1.0, weight.shape) for weight in model.weights])
    return model


def numpy(outputs):
    return {name: ops.convert_to_numpy(value) for name, value in outputs.items()}


@functools.cache
def graph(model, draft=None, **options):
    """Returns a translator as a graph for sources of any size, as in an export."""
    signature = [{"source": tf.TensorSpec([None, None], tf.int32)}]
    translator = Translator(model, TranslationOptions(**options), draft=draft)
    function = tf.function(translator, input_signature=signature, autograph=False)
    return lambda source: numpy(function({"source": tf.constant(source)}))


def eager(model, draft=None, **options):
    """Returns a translator without a graph, which takes seconds to make."""
    translator = Translator(model, TranslationOptions(**options), draft=draft)
    return lambda source: numpy(translator({"source": source}))


def log_probabilities(model, source, ids):
    """Returns the log probabilities [R, L, V] of padded ids [R, L] under teacher forcing, but of start and padding."""
    target = np.concatenate([np.full_like(ids[:, :1], START), ids[:, :-1]], axis=1)
    logits = ops.convert_to_numpy(model({"source": source, "target": np.where(ids == PAD, PAD, target)})).copy()
    logits[..., [PAD, START]] = -np.inf
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def without_padding(ids):
    end = np.flatnonzero(ids == END)
    length = end[0] + 1 if len(end) else np.sum(ids != PAD)
    assert not np.any(ids[length:]) and np.all(ids[:length] > START)
    return ids[:length]


def check_rows_and_empty_batches(translate, together, beams, longest):
    """A batch is its rows one by one, and one without rows is an empty result."""
    for row in range(3):
        length = int(np.sum(SOURCE[row] != PAD))
        alone = translate(SOURCE[row : row + 1, :length])
        room = min(2 * length + 10, longest)
        assert alone["ids"].shape == (1, beams, room)
        np.testing.assert_array_equal(together["ids"][row, :, :room], alone["ids"][0])
        assert not np.any(together["ids"][row, :, room:])
        np.testing.assert_allclose(together["log_prob"][row], alone["log_prob"][0], rtol=1e-4)
    nothing = translate(np.zeros((0, 2), "int32"))
    assert nothing["ids"].shape == (0, beams, min(14, longest)) and nothing["log_prob"].shape == (0, beams)


@pytest.mark.parametrize("name", nightly_unless("transformer_tiny".__eq__, SMALL))
def test_greedy_takes_the_best_of_teacher_forcing(name):
    model = created(name)
    translate = graph(model, max_length=11)
    outputs = translate(SOURCE)
    assert outputs["ids"].shape == (3, 1, 11) and outputs["log_prob"].dtype == np.float32
    for row, scores in enumerate(log_probabilities(model, SOURCE, outputs["ids"][:, 0])):
        ids = without_padding(outputs["ids"][row, 0])
        np.testing.assert_array_equal(ids, scores[: len(ids)].argmax(axis=-1))
        np.testing.assert_allclose(outputs["log_prob"][row, 0], scores[: len(ids)].max(axis=-1).sum(), atol=1e-4)
        assert ids[-1] == END or len(ids) == 11
    check_rows_and_empty_batches(translate, outputs, 1, 11)


@pytest.mark.parametrize("name", nightly_unless("rnnsearch".__eq__, SMALL))
def test_beams_are_scored_as_in_teacher_forcing_and_sorted(name):
    model = created(name)
    translate = graph(model, beam_size=3)
    outputs = translate(SOURCE)
    scores = log_probabilities(model, np.repeat(SOURCE, 3, axis=0), outputs["ids"].reshape(9, -1))
    for row in range(3):
        penalised = []
        for place, (padded, log_prob) in enumerate(zip(outputs["ids"][row], outputs["log_prob"][row], strict=True)):
            ids = without_padding(padded)
            np.testing.assert_allclose(scores[3 * row + place][np.arange(len(ids)), ids].sum(), log_prob, atol=1e-4)
            penalised.append(log_prob / ((5 + len(ids)) / 6) ** 0.6)
        assert penalised == sorted(penalised, reverse=True)
        assert len({tuple(ids) for ids in outputs["ids"][row]}) == 3
    check_rows_and_empty_batches(translate, outputs, 3, 256)


def test_the_best_alone_and_without_a_graph_is_the_first_of_all():
    model, source = created("rnnsearch"), SOURCE[1:, :2]
    best = Translator(model, TranslationOptions(beam_size=3, nbest=1))({"source": source})
    assert_alike(numpy(best), {name: values[:, :1] for name, values in graph(model, beam_size=3)(source).items()})


@pytest.mark.nightly
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("options", [{"max_length": 11}, {"beam_size": 3}], ids=str)
def test_xla_agrees_with_graph(name, options):
    model, source = created(name), SOURCE[1:, :2]
    compiled = tf.function(Translator(model, TranslationOptions(**options), resizes=False), jit_compile=True)
    assert_alike(numpy(compiled({"source": tf.constant(source)})), graph(model, **options)(source))


@pytest.mark.nightly
def test_drafts_change_no_translation():
    """With sources that share the vocabulary, in which drafts are looked up, without, and from a draft model."""
    for tied in ("none", "all"):
        sizes = {"source_vocab_size": V, "target_vocab_size": V, "tied_embeddings": tied}
        model = zoo.create_model("transformer_tiny", **sizes, **SMALL["transformer_tiny"])
        chance = np.random.default_rng(3)
        model.set_weights([chance.uniform(-1.0, 1.0, weight.shape) for weight in model.weights])
        for options in ({"max_length": 16}, {"max_length": 16, "force_end": True, "rules": "ctranslate2"}):
            way = graph if tied == "all" and "rules" in options else eager
            drafted, expected = way(model, draft_length=3, **options), eager(model, **options)(SOURCE)
            assert_alike(drafted(SOURCE), expected)
            assert drafted(SOURCE[:0])["ids"].shape[0] == 0
    drafted = eager(model, created("transformer_tiny"), draft_length=3, **options)
    assert_alike(drafted(SOURCE), expected)
    assert drafted(SOURCE[:0])["ids"].shape[0] == 0


def test_draft_models_that_are_refused():
    options, name = TranslationOptions(draft_length=2), "transformer_tiny"
    larger = zoo.create_model(name, source_vocab_size=V, target_vocab_size=V + 1, **SMALL[name])
    for draft, words in ((created("rnnsearch"), "RNNSearch"), (larger, "`target_vocab_size`.*13.*=14")):
        with pytest.raises(InputError, match=words):
            Translator(created(name), options, draft=draft)


def assert_alike(outputs, expected):
    np.testing.assert_array_equal(outputs["ids"], expected["ids"])
    np.testing.assert_allclose(outputs["log_prob"], expected["log_prob"], rtol=1e-4)


def test_limits():
    # A model that never ends: weights of zero, and a bias that prefers one token.
    model = zoo.create_model("rnnsearch", source_vocab_size=V, target_vocab_size=V, **SMALL["rnnsearch"])
    model.set_weights([np.zeros(weight.shape) for weight in model.weights])
    model.output_dense.bias.assign(10.0 * np.eye(V)[7])
    source = np.array([[4, 0], [4, 2], [0, 0]], "int32")
    for max_length, beam_size, expected in ((13, 1, [12, 13, 0]), (2, 2, [2, 2, 0])):
        search = Translator(model, TranslationOptions(beam_size=beam_size, max_length=max_length))
        ids = numpy(search({"source": source}))["ids"]
        assert ids.shape[-1] == max_length
        assert np.sum(ids[:, 0] == 7, axis=-1).tolist() == expected


def test_scores_are_float32_and_options_checked():
    sizes = {"source_vocab_size": V, "target_vocab_size": V}
    model = zoo.create_model("rnnsearch", dtype="mixed_bfloat16", **sizes, **SMALL["rnnsearch"])
    translator = Translator(model, TranslationOptions(beam_size=2, max_length=2))
    assert keras.backend.standardize_dtype(translator({"source": SOURCE})["log_prob"].dtype) == "float32"
    with every() as failures:
        for options, message in (
            ({"beam_size": 0}, "`beam_size`.*beam_size=0"),
            ({"beam_size": 7}, "13.*beam_size=7"),
            ({"beam_size": 2, "nbest": 3}, "`nbest`.*2.*nbest=3"),
            ({"beam_size": 2, "nbest": 0}, "`nbest`.*nbest=0"),
            ({"beam_size": 2, "draft_length": 3}, "`draft_length`.*beam_size=2"),
            ({"draft_length": 3}, "`draft_length`.*RNNSearch.*draft_length=3"),
            ({"max_length": 0}, "`max_length`.*max_length=0"),
            ({"length_penalty": -0.1}, "`length_penalty`.*length_penalty=-0.1"),
            ({"length_penalty": 11}, "`length_penalty`.*length_penalty=11"),
            ({"length_penalty": math.nan}, "`length_penalty`.*length_penalty=nan"),
            ({"coverage_penalty": math.inf}, "`coverage_penalty`.*coverage_penalty=inf"),
        ):
            with failures.of(options), pytest.raises(InputError, match=message):
                Translator(model, TranslationOptions(**options))
