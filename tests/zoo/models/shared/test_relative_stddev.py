"""The standard deviation with which relative positions begin."""

import keras
import numpy as np
import pytest

import zoo

SIZES = {"vocab_size": 13, "num_classes": 2}


def vectors(**options):
    model = zoo.create_model("transformer_classifier", positions="relative", num_layers=1, **options, **SIZES)
    positions = model.encoder_blocks[0].attention.positions
    return [keras.ops.convert_to_numpy(table) for table in (positions.key_embeddings, positions.value_embeddings)]


def test_vectors_begin_with_it_or_as_glorot_has_it():
    assert [np.std(table) for table in vectors(relative_stddev=1.5)] == pytest.approx([1.5, 1.5], rel=0.1)
    limit = (6 / (33 + 32)) ** 0.5
    assert all(0.9 * limit < np.abs(table).max() <= limit for table in vectors())


def test_it_changes_nothing_for_other_positions():
    def weights(**options):
        keras.utils.set_random_seed(3)
        return zoo.create_model("transformer_classifier", num_layers=1, model_dim=8, **options, **SIZES).get_weights()

    assert all(map(np.array_equal, weights(), weights(relative_stddev=1.0)))
