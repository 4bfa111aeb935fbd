"""Scores and positions that several layers share, in copies of models and of layers."""

import json

import keras
import numpy as np
import pytest
from support.layers.cases.scores import Distance
from support.layers.contract import random_array, randomize, to_numpy

from zoo import layers


def _scores(inputs):
    score = layers.GeneralScore()
    hidden = layers.Attention(score)(inputs, inputs)
    hidden = layers.MultiHeadAttention(1, 6, score=score)(hidden, hidden)
    return layers.Attention(score)(hidden, hidden), lambda layer: getattr(layer, "score", None), 3


def _positions(inputs):
    positions, hidden = layers.ShawRelativePositions(2), inputs
    for _ in range(2):
        hidden = layers.MultiHeadAttention(2, 3, positions=positions)(hidden, hidden)
    return hidden, lambda layer: getattr(layer, "positions", None), 2


def _nested(inputs):
    positions, hidden = layers.T5RelativePositions(), inputs
    for _ in range(2):
        attention = layers.MultiHeadAttention(2, 3, positions=positions)
        hidden = layers.TransformerEncoderBlock(attention, layers.FeedForward(7))(hidden)
    return hidden, lambda layer: layer.attention.positions, 2


every_kind = pytest.mark.parametrize("make", [_scores, _positions, _nested])
COPIES = {
    "clone_model": keras.models.clone_model,
    "from_config": lambda model: keras.Model.from_config(model.get_config()),
    "from_json": lambda model: keras.models.model_from_json(model.to_json()),
    "from_json_of_another_process": lambda model: keras.Model.from_config(json.loads(json.dumps(model.get_config()))),
}


@every_kind
@pytest.mark.parametrize(
    "copy",
    [pytest.param(copy, id=name, marks=[pytest.mark.nightly] * (name != "from_json")) for name, copy in COPIES.items()],
)
def test_what_is_shared_is_shared_in_copies_of_a_model(make, copy):
    inputs = keras.Input((5, 6))
    outputs, part, holders = make(inputs)
    model = randomize(keras.Model(inputs, outputs))
    copies = [copy(model) for _ in range(2)]
    parts = [[part(layer) for layer in each.layers[1:]] for each in (model, *copies)]
    assert [len(each) for each in parts] == [holders] * 3
    assert len({id(each) for each in sum(parts, [])}) == 3  # one in each model
    batch = random_array((2, 5, 6), 1)
    for each in copies:
        assert len(each.weights) == len(model.weights)
        each.set_weights(model.get_weights())
        np.testing.assert_array_equal(to_numpy(each(batch)), to_numpy(model(batch)))


def test_each_head_keeps_a_score_of_its_own_when_a_model_is_reloaded(tmp_path):
    inputs = keras.Input((5, 6))
    layer = layers.MultiHeadAttention(3, 2, score=Distance(4), share_score=False)
    model = randomize(keras.Model(inputs, layer(inputs, inputs)))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert len(loaded.weights) == len(model.weights)
    batch = random_array((2, 5, 6), 1)
    np.testing.assert_array_equal(to_numpy(loaded(batch)), to_numpy(model(batch)))


def test_copies_of_a_layer_share_nothing():
    score = layers.GeneralScore()
    layer, other = layers.Attention(score), layers.Attention(score)
    for each in (layer, other):
        each.build((2, 3, 6), (2, 5, 6))
    twins = [layers.Attention.from_config(layer.get_config()) for _ in range(3)]
    assert len({id(twin.score) for twin in (*twins, layer)}) == 4
    alone = layers.Attention(layers.GeneralScore())
    assert "sharing" not in json.dumps(alone.get_config())
