"""Scores and positions that several layers share, in copies of models and of layers."""

import json

import keras
import numpy as np
import pytest
from support.layers.cases.scores import Distance
from support.layers.contract import random_array, randomize, to_numpy

from zoo import layers

SCORES = {
    "general": lambda: layers.GeneralScore(),
    "layer": lambda: layers.CallableScore(Distance(5)),
    "concat": lambda: layers.ConcatScore(),
    "tanh_concat": lambda: layers.TanhConcatScore(),
    "additive": lambda: layers.AdditiveScore(5),
    "learned_cosine": lambda: layers.CosineScore(learn_temperature=True),
    "location": lambda: layers.LocationScore(7),
}
POSITIONS = {
    "shaw": lambda: layers.ShawRelativePositions(3),
    "learned": lambda: layers.LearnedPositions(11),
    "rotary": lambda: layers.RotaryPositions(),
    "t5": lambda: layers.T5RelativePositions(8, 11),
}
COPIES = {
    "from_json_of_another_process": lambda model: keras.Model.from_config(json.loads(json.dumps(model.get_config()))),
    "clone_model": keras.models.clone_model,
    "from_config": lambda model: keras.Model.from_config(model.get_config()),
    "from_json": lambda model: keras.models.model_from_json(model.to_json()),
}


def _model(scores, positions):
    """Returns a model whose layers share each of the scores and positions."""
    inputs = hidden = keras.Input((5, 6))
    for make in scores:
        score = make()
        for layer in (layers.Attention(score), layers.MultiHeadAttention(1, 6, score=score)):
            hidden = layer(hidden, hidden)
    for make in positions:
        own = make()
        attention = layers.MultiHeadAttention(3, 2, positions=own)  # one alone, and one inside another layer
        inner = layers.TransformerEncoderBlock(layers.MultiHeadAttention(3, 2, positions=own), layers.FeedForward(7))
        hidden = inner(attention(hidden, hidden))
    return randomize(keras.Model(inputs, hidden))


def _shared(model):
    """Returns all parts of a model that layers may share."""
    parts = {id(part): part for part in model._flatten_layers() if getattr(part, "may_be_shared", False)}
    return list(parts.values())


@pytest.mark.parametrize(
    ("scores", "positions", "copies"),
    [
        (["general"], ["shaw"], ["from_json_of_another_process"]),
        pytest.param(SCORES, POSITIONS, COPIES, marks=pytest.mark.nightly),
    ],
    ids=["few", "all"],
)
def test_what_is_shared_is_shared_in_copies_and_reloaded_models(scores, positions, copies, tmp_path):
    model = _model([SCORES[name] for name in scores], [POSITIONS[name] for name in positions])
    model.save(tmp_path / "model.keras")
    found = [keras.saving.load_model(tmp_path / "model.keras")]
    for name in copies:
        found += [COPIES[name](model) for _ in range(2)]
    shared, batch = _shared(model), random_array((2, 5, 6), 1)
    expected = to_numpy(model(batch))
    for copy in found:
        assert sorted(type(part).__name__ for part in _shared(copy)) == sorted(type(part).__name__ for part in shared)
        assert len(copy.weights) == len(model.weights)
        if copy is not found[0]:
            copy.set_weights(model.get_weights())
        np.testing.assert_array_equal(to_numpy(copy(batch)), expected)
    parts = [part for each in (model, *found) for part in _shared(each)]
    assert len({id(part) for part in parts}) == len(parts)  # no two models share any


@pytest.mark.nightly
def test_layers_as_scores_are_reloaded(tmp_path):
    function, inputs = Distance(4), keras.Input((5, 6))
    hidden = layers.Attention(function)(inputs, inputs)
    hidden = layers.Attention(function)(hidden, hidden)  # two scores share a layer
    alone = layers.MultiHeadAttention(3, 2, score=Distance(4), share_score=False)
    model = randomize(keras.Model(inputs, alone(hidden, hidden)))
    model.save(tmp_path / "model.keras")
    loaded, batch = keras.saving.load_model(tmp_path / "model.keras"), random_array((2, 5, 6), 1)
    assert len(loaded.weights) == len(model.weights) == 4 + 3 * 4 + 8
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
