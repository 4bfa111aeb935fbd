"""`zoo.draw_positions` and `zoo.position_terms`."""

import sys

import numpy as np
import pytest
from support.layers.contract import random_array, randomize, to_numpy

import zoo
import zoo.inspection
from zoo import layers
from zoo.errors import InputError

X, P = random_array((5, 8), 0), random_array((5, 8), 1)
NAMES = ["content_content", "content_position", "position_content", "position_position"]


def image(figure):
    return np.asarray(figure.axes[0].images[0].get_array())


def test_sinusoids_and_their_frequencies():
    figure = zoo.draw_positions("sinusoidal", 7, 6)
    frequencies = 10000.0 ** (-np.arange(0, 6, 2) / 6)
    angles = np.arange(7)[:, None] * frequencies
    expected = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(7, 6)
    np.testing.assert_allclose(image(figure), expected, atol=1e-5)
    np.testing.assert_allclose(figure.axes[1].lines[0].get_ydata(), frequencies, rtol=1e-4)


def test_rotary_and_learned_positions(tmp_path):
    rotary = zoo.draw_positions("rotary", 7, 6)
    np.testing.assert_allclose(image(rotary)[:, 0], np.cos(np.arange(7)), atol=1e-5)
    np.testing.assert_allclose(rotary.axes[1].lines[0].get_ydata()[0], 1, rtol=1e-5)
    layer = layers.LearnedPositions(9)
    layer.build((None, None, 6))
    learned = zoo.draw_positions(layer, 7, 6)
    np.testing.assert_array_equal(image(learned), to_numpy(layer.embeddings)[:7])
    assert image(zoo.draw_positions("learned", 1, 5)).shape == (1, 5)
    learned.savefig(tmp_path / "learned.png")
    assert (tmp_path / "learned.png").stat().st_size


def test_wrong_pictures():
    for arguments, words in (
        (("sinusoid", 7, 6), "'sinusoid'.*sinusoidal"),
        (("sinusoidal", 0, 6), "length=0"),
        (("sinusoidal", 7, 5), "dim=5"),
        (("rotary", 7, 1), "dim=1"),
    ):
        with pytest.raises(InputError, match=words):
            zoo.draw_positions(*arguments)


def test_without_matplotlib(monkeypatch):
    def fail(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("zoo.inspection.figures.importlib.import_module", fail)
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    draw_positions = zoo.inspection.draw_positions
    with pytest.raises(InputError, match=r"pip install .*\[pictures\]"):
        draw_positions("sinusoidal", 7, 6)


def test_four_terms():
    terms = zoo.position_terms(X, P)
    assert list(terms) == NAMES
    np.testing.assert_allclose(terms["content_position"], X @ P.T, atol=1e-6)
    np.testing.assert_allclose(terms["position_content"], P @ X.T, atol=1e-6)
    np.testing.assert_allclose(sum(terms.values()), (X + P) @ (X + P).T, atol=1e-5)
    sinusoids = to_numpy(layers.SinusoidalPositions()(np.zeros((1, 5, 8), "float32"), start_index=0))[0]
    found = zoo.position_terms(X, layers.SinusoidalPositions())["position_position"]
    np.testing.assert_allclose(found, sinusoids @ sinusoids.T, atol=1e-5)


def test_four_terms_of_a_layer_sum_up_to_its_scores():
    layer = layers.MultiHeadAttention(2, 3, positions=layers.SinusoidalPositions())
    layer.build((None, None, 8), (None, None, 8))
    terms = zoo.position_terms(X, layer.positions, randomize(layer))
    assert terms["content_content"].shape == (2, 5, 5)
    np.testing.assert_allclose(sum(terms.values()), zoo.trace(layer, X)["raw_scores"], atol=1e-4)
    assert layer.positions is not None


def test_wrong_terms():
    with pytest.raises(InputError, match=r"positions.*\(5, 8\) and \(4, 8\)"):
        zoo.position_terms(X, P[:4])
    layer = layers.MultiHeadAttention(2, 3, score="additive")
    with pytest.raises(InputError, match="MultiHeadAttention.*AdditiveScore"):
        zoo.position_terms(X, P, layer)
    with pytest.raises(InputError, match="concatenate=True"):
        zoo.position_terms(X, layers.SinusoidalPositions(concatenate=True))
