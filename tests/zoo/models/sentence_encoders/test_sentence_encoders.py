"""Sentence encoders by hand: from the embeddings to one vector for a text."""

import numpy as np
from support.model_cases import case, create
from support.models import numpy
from support.text_models import TEXTS

from zoo.models.shared.text_encoder import segments
from zoo.vocabulary import END, PAD, START


def test_a_vector_by_hand():
    real = TEXTS != PAD
    for number in (0, 1):
        model, vectors = case("sentence_bert", number).model, case("sentence_bert", number).expected
        found = numpy(model.represent(TEXTS))
        if model.pooling == "first":
            expected = found[:, 0]
        else:
            pooled = np.stack([row[kept].mean(axis=0) for row, kept in zip(found, real, strict=True)])
            expected = np.tanh(pooled @ numpy(model.projection.kernel) + numpy(model.projection.bias))
            expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(vectors, expected, atol=1e-6)


def test_what_enters_the_first_block_by_hand():
    model = create("sentence_bert", num_layers=1)
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
