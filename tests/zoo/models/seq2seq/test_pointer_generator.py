"""The pointer-generator: what it writes, what it copies, and that both agree step by step."""

import numpy as np
import pytest
from support.models import numpy
from support.seq2seq_models import SMALL, TARGET_TOKENS, batch, create, logits

from zoo.decoding_options import TranslationOptions
from zoo.inference.translator import Translator
from zoo.models.seq2seq.pointer_generator import copied_tokens
from zoo.vocabulary import PAD


@pytest.fixture(params=[pytest.param(0, marks=pytest.mark.nightly), 1], ids=["plain", "coverage"], scope="module")
def model(request):
    return create("pointer_generator", SMALL["pointer_generator"][request.param])


@pytest.fixture
def copier(model):
    """The model with a gate that is closed: it copies and writes nothing."""
    before = model.gate_dense.get_weights()
    model.gate_dense.set_weights([np.zeros_like(before[0]), np.full_like(before[1], -50.0)])
    yield model
    model.gate_dense.set_weights(before)


def test_copied_tokens():
    weights = np.random.default_rng(1).random((2, 3, 5)).astype("float32")
    source = np.array([[4, 5, 4, 6, 0], [2, 2, 2, 0, 1]], "int32")
    expected = np.zeros((2, 3, 7))
    for b, t, s in np.ndindex(weights.shape):
        expected[b, t, source[b, s]] += weights[b, t, s]
    np.testing.assert_allclose(numpy(copied_tokens(weights, source, 7)), expected, atol=1e-6)


def test_the_mixture_of_two_distributions(model):
    source, target = batch()
    memory = model.encode(source)
    embedded, recurrent, weights = (numpy(tensor) for tensor in model._run(target, memory, training=False))
    kernel, bias = (numpy(weight) for weight in model.gate_dense.weights)
    gate = 1 / (1 + np.exp(-(np.concatenate([recurrent, embedded], axis=-1) @ kernel + bias)))
    written = numpy(model._logits(recurrent, embedded))
    written = np.exp(written - written.max(axis=-1, keepdims=True))
    expected = gate * written / written.sum(axis=-1, keepdims=True)
    for b, t, s in np.ndindex(weights[:, 0, 0].shape):
        expected[b, t, source[b, s]] += (1 - gate[b, t, 0]) * weights[b, 0, 0, t, s]
    found, real = np.exp(logits(model, source, target)), target != PAD
    np.testing.assert_allclose(found[real], expected[real], atol=2e-6)
    np.testing.assert_allclose(found[real].sum(axis=-1), 1.0, atol=1e-5)


def test_a_closed_gate_copies_only(copier):
    source, target = batch()
    found = np.exp(logits(copier, source, target))
    for b in range(len(source)):
        elsewhere = np.setdiff1d(np.arange(TARGET_TOKENS), source[b])
        assert found[b, 0, elsewhere].max() < 1e-6


@pytest.mark.nightly
@pytest.mark.parametrize("beam_size", [1, 3])
def test_decoding_copies(copier, beam_size):
    source, _ = batch()
    outputs = Translator(copier, TranslationOptions(beam_size=beam_size, max_length=7))({"source": source})
    ids, log_probs = numpy(outputs["ids"]), numpy(outputs["log_prob"])
    for b in range(len(source)):
        assert set(ids[b, 0]) - {PAD} <= set(source[b]) and log_probs[b, 0] > -40
