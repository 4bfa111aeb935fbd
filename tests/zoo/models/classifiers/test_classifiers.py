"""Classifiers by hand: how they pool, convolve and drop."""

import numpy as np
import pytest
from support.model_cases import case, create
from support.models import names_of, numpy
from support.text_models import DROPPED, TOKENS, sentences

import zoo
from zoo.models.shared.pooling import WordDropout
from zoo.vocabulary import END, PAD, UNKNOWN


def logits(model, tokens, **options):
    return numpy(model({"tokens": tokens}, **options))


def test_filter_widths_are_read_as_they_were_saved_once():
    model = zoo.create_model("cnn_classifier", vocab_size=13, num_classes=3, filter_widths=[1, 4], num_filters=2)
    assert model.filter_widths == "1,4" and [layer.kernel_size for layer in model.convolutions] == [(1,), (4,)]


def test_attention_is_what_the_model_used():
    model, tokens = case("birnn_attention_classifier").model, sentences()
    weights = numpy(model.attention(tokens))[:, 0, 0]
    np.testing.assert_array_equal(weights[0], np.broadcast_to(weights[0, 0], (7, 7)))  # the same row for every token
    pooled = np.einsum("bs,bsd->bd", weights[:, 0], numpy(model.represent(tokens)))
    output = model.output_dense
    expected = pooled @ numpy(output.kernel) + numpy(output.bias)
    np.testing.assert_allclose(logits(model, tokens), expected, atol=2e-6)


def test_pooling_by_hand():
    tokens = sentences()
    for pooling, pool in {"mean": np.mean, "max": np.max, "first": lambda rows, axis: rows[0]}.items():
        model = create("birnn_classifier", 1, pooling=pooling)
        vectors, output = numpy(model.represent(tokens)), model.output_dense
        pooled = np.stack([pool(row[real], axis=0) for row, real in zip(vectors, tokens != PAD, strict=True)])
        expected = pooled @ numpy(output.kernel) + numpy(output.bias)
        np.testing.assert_allclose(logits(model, tokens), expected, atol=2e-6, err_msg=pooling)


def test_convolutions_by_hand():
    model = create("cnn_classifier", embedding_dim=2, num_filters=3, filter_widths="2,3")
    tokens = np.array([[5, 7, END, PAD]], "int32")
    embedded = np.concatenate([np.zeros((1, 2)), numpy(model.embedding.embeddings)[[5, 7, END]], np.zeros((1, 2))])
    expected = []
    for width, first in ((2, 1), (3, 0)):  # a filter of even width looks one token further to the right
        convolution = model.convolutions[width - 2]
        windows = np.stack([embedded[first + place : first + place + width] for place in range(3)])
        found = np.einsum("swd,wdf->sf", windows, numpy(convolution.kernel)) + numpy(convolution.bias)
        expected.append(np.maximum(found, 0))
    np.testing.assert_allclose(numpy(model.represent(tokens))[0, :3], np.concatenate(expected, axis=-1), atol=1e-6)


def test_without_positions_order_is_not_seen():
    model, tokens = create("self_attention_classifier", positions="none"), sentences()
    np.testing.assert_allclose(logits(model, tokens[:1, ::-1].copy()), logits(model, tokens[:1]), atol=2e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("name", names_of("classifier"))
def test_every_kind_of_dropout_acts_alone(name):
    tokens, small = sentences(), {"num_layers": 1} if name == "transformer_classifier" else {}
    without = dict.fromkeys(DROPPED, 0.0) | small
    expected = logits(create(name, **without), tokens, training=True)
    for kind in DROPPED:
        dropped = logits(create(name, **without | {kind: 0.5}), tokens, training=True)
        assert not np.allclose(dropped, expected, atol=1e-3), kind


def test_word_dropout_makes_words_unknown():
    tokens = np.tile(np.arange(TOKENS, dtype="int32"), (200, 1))
    layer = WordDropout(0.3, seed=1)
    np.testing.assert_array_equal(numpy(layer(tokens)), tokens)
    dropped = numpy(layer(tokens, training=True))
    assert set(np.unique(dropped[:, UNKNOWN + 1 :] - tokens[:, UNKNOWN + 1 :])) == {0, *range(-TOKENS + 4, 0)}
    np.testing.assert_array_equal(dropped[:, : UNKNOWN + 1], tokens[:, : UNKNOWN + 1])
    assert np.all((dropped == tokens) | (dropped == UNKNOWN))
    assert 0.27 < np.mean(dropped[:, UNKNOWN + 1 :] == UNKNOWN) < 0.33
