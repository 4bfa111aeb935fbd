"""Sentence encoders: their size, their file, and one vector for a text by hand."""

import keras
import numpy as np
import pytest
from support.models import check_config, check_gradients, compiled, create, names_of, numpy

import zoo
from zoo.models.shared.transformer_text_encoder import segments
from zoo.vocabulary import END, PAD, START, pad

SYMBOLS = 13
_OPTIONS = {"model_dim": 6, "num_layers": 2, "intermediate_dim": 11, "num_heads": 3, "max_length": 7}
SMALL = {"sentence_bert": [{**_OPTIONS, "projection_dim": 5}, {**_OPTIONS, "pooling": "first", "normalize": False}]}
PINS = {
    # Embeddings (101 + 512 + 2) · 384 and their norm 2 · 384; blocks 6 · (4 · (384² + 384) + 384 · 1536 · 2 + 1536
    # + 384 + 4 · 384).
    "sentence_bert": 10_883_712,
}
TEXTS = pad([[START, 5, 7, 9, END], [START, 8, END, 4, END], [START, END]])


@pytest.fixture(scope="module", params=SMALL["sentence_bert"], ids=["projected", "plain"])
def model(request):
    return create("sentence_bert", vocab_size=SYMBOLS, **request.param)


def vectors(model, tokens=TEXTS):
    return numpy(model({"tokens": tokens}))


@pytest.mark.parametrize("name", names_of("sentence_encoder"))
def test_every_name_has_a_pinned_number_of_weights(name):
    assert name in PINS and name in SMALL, f"{name} has no pin or no small options: add them."
    assert zoo.create_model(name, vocab_size=101).count_params() == PINS[name]


def test_config_file_and_graph(model, tmp_path):
    check_config(model)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(vectors(keras.saving.load_model(tmp_path / "model.keras")), vectors(model))
    function = compiled(lambda tokens: model({"tokens": tokens}))
    np.testing.assert_allclose(numpy(function(TEXTS)), vectors(model), atol=2e-6)
    np.testing.assert_allclose(numpy(function(TEXTS[2:, :2])), vectors(model)[2:], atol=2e-6)


def test_a_vector_by_hand(model):
    found = numpy(model.represent(TEXTS))
    real = TEXTS != PAD
    if model.pooling == "first":
        expected = found[:, 0]
    else:
        pooled = np.stack([row[kept].mean(axis=0) for row, kept in zip(found, real, strict=True)])
        expected = np.tanh(pooled @ numpy(model.projection.kernel) + numpy(model.projection.bias))
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors(model), expected, atol=1e-6)
    assert vectors(model).shape == (3, model.vector_dim)


def test_padding_and_gradients(model):
    np.testing.assert_allclose(vectors(model, np.pad(TEXTS, ((0, 0), (0, 2)))), vectors(model), atol=2e-6)
    check_gradients(lambda: model({"tokens": TEXTS}), model)


def test_what_enters_the_first_block_by_hand():
    model = create("sentence_bert", vocab_size=SYMBOLS, **{**_OPTIONS, "num_layers": 1})
    row = np.array([[START, 8, END, 4]], "int32")
    tables = (numpy(layer.embeddings) for layer in (model.embedding, model.input_positions.positions))
    words, positions = tables
    parts = numpy(model.segment_embedding.embeddings)[[0, 0, 0, 1]]
    summed = words[row[0]] + positions[:4] + parts
    norm = model.embedding_normalization
    centred = summed - summed.mean(axis=1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-12)
    entering = normal * numpy(norm.gamma) + numpy(norm.beta)
    expected = numpy(model.encoder_blocks[0](entering[None]))
    np.testing.assert_allclose(numpy(model.represent(row)), expected, atol=1e-5)


def test_a_segment_begins_after_each_end():
    tokens = np.array([[START, 5, END, 5, END, 5, END], [END, PAD, PAD, PAD, PAD, PAD, PAD]], "int32")
    assert numpy(segments(tokens, 2)).tolist() == [[0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1]]
    assert numpy(segments(tokens, 9))[0].tolist() == [0, 0, 0, 1, 1, 2, 2]
