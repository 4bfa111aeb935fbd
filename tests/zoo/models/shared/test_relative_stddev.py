"""The standard deviation with which relative positions begin."""

import keras
import numpy as np
import pytest

import zoo

SIZES = {"vocab_size": 13, "num_classes": 2}


def vectors(**options):
    model = zoo.create_model("transformer_classifier", positions="relative", **options, **SIZES)
    positions = model.encoder_blocks[0].attention.positions
    return [keras.ops.convert_to_numpy(table) for table in (positions.key_embeddings, positions.value_embeddings)]


def test_vectors_begin_with_it():
    assert [np.std(table) for table in vectors(relative_stddev=1.5)] == pytest.approx([1.5, 1.5], rel=0.1)


def test_the_default_is_glorot_s():
    limit = (6 / (33 + 32)) ** 0.5
    assert all(0.9 * limit < np.abs(table).max() <= limit for table in vectors())


def test_it_changes_nothing_for_other_positions():
    def weights(**options):
        keras.utils.set_random_seed(3)
        return zoo.create_model("transformer_classifier", **options, **SIZES).get_weights()

    assert all(map(np.array_equal, weights(), weights(relative_stddev=1.0)))


def test_it_is_not_negative():
    with pytest.raises(ValueError, match="relative_stddev"):
        zoo.create_model("transformer_classifier", relative_stddev=-1.0, **SIZES)
