"""Order, positions, and what convolution, recurrence and self-attention cost, as they are taught."""

import keras
import numpy as np
import pytest
from introductions.conftest import array, close, numpy
from support.commands import parse

import zoo
from zoo import layers

X = array(1, 5, 8)
POSITIONS = "model.positions=sinusoidal"


def test_a_bag_of_words(lines):
    names = lines(x=X)
    close(names["permuted"], numpy(names["y"])[:, ::-1])
    ordered = layers.MultiHeadAttention(num_heads=2, key_dim=4, positions=layers.RotaryPositions())
    assert np.abs(numpy(ordered(X[:, ::-1], X[:, ::-1])) - numpy(ordered(X, X))[:, ::-1]).max() > 1e-3


def test_sinusoids(lines):
    place, pair = np.arange(50)[:, None], np.arange(8)
    angles = place / 10_000 ** (2 * pair / 16)
    p = numpy(lines()["p"])
    close(p[:, 0::2], np.sin(angles))
    close(p[:, 1::2], np.cos(angles))


def test_learned_positions(lines):
    y = numpy(lines(x=X)["y"])
    assert y.shape == X.shape and layers.LearnedPositions(max_length=50)(X).shape == X.shape
    layer = layers.LearnedPositions(max_length=50)
    layer.build(X.shape)
    close(numpy(layer(X)) - X, numpy(layer.weights[0])[None, :5])


def test_order_is_learned(command_lines):
    train, evaluate = command_lines
    arguments = parse(*train)
    assert (train[0], arguments.data) == ("training.train", "senses:twins") and POSITIONS in arguments.set
    assert evaluate[0] == "training.evaluate" and parse(*evaluate).data == arguments.data


def test_positions_in_the_scores(lines):
    models, source = lines()["models"], np.array([[5, 6, 5, 2]], "int32")
    assert {kind: model.positions for kind, model in models.items()} == {kind: kind for kind in models}
    without = zoo.create_model("transformer_tiny", positions="none", source_vocab_size=99, target_vocab_size=99)
    first, _, third, _ = numpy(without.represent(source))[0]
    close(first, third)  # one word at two places
    for model in models.values():
        for weight in model.weights:  # the paper's tables begin at zero
            weight.assign_add(array(*weight.shape) / 10)
        first, _, third, _ = numpy(model.represent(source))[0]
        assert np.abs(first - third).max() > 1e-3


def test_the_scale_of_embeddings(lines):
    sizes = {"source_vocab_size": 13, "target_vocab_size": 13, "num_layers": 1, "model_dim": 8, "num_heads": 2}
    assert not lines()["model"].scale_embeddings
    scaled = zoo.create_model("transformer_tiny", **sizes)
    plain = zoo.create_model("transformer_tiny", scale_embeddings=False, **sizes)
    plain.set_weights(scaled.get_weights())
    for embedding in (plain.target_embedding,):
        embedding.embeddings.assign(numpy(embedding.embeddings) * 8**0.5)
    source = np.array([[5, 6, 2]], "int32")
    close(plain.represent(source), numpy(scaled.represent(source)))


def test_integers_as_positions(lines):
    names = lines()
    assert (names["model"].positions, names["normalized"].positions) == ("integer", "integer_normalized")


def test_positions_that_are_concatenated(lines):
    names = lines()
    added = zoo.create_model("transformer_tiny", **names["sizes"])
    assert names["model"].count_params() > added.count_params()


def test_a_picture_of_p(lines):
    figure = lines()["figure"]
    assert figure.axes


def test_the_four_terms(lines):
    x, p = array(4, 6), array(4, 6, seed=1)
    terms = lines(x=x, p=p)["terms"]
    parts = [x @ x.T, x @ p.T, p @ x.T, p @ p.T]
    for term, expected in zip(terms.values(), parts, strict=True):
        close(term, expected)
    close(sum(numpy(term) for term in terms.values()), (x + p) @ (x + p).T, 1e-4)


def test_cost_steps_and_paths(lines):
    n, d = 12, 16
    convolution, recurrence, attention = lines(x=array(1, n, d), n=n, d=d)["costs"]
    assert convolution.multiplications == pytest.approx(3 * n * d * d, rel=0.1)
    assert recurrence.multiplications == 2 * n * d * d
    assert attention["raw_scores"].multiplications == n * n * d
    assert [cost.sequential_steps for cost in (convolution, recurrence, attention)] == [1, n, 1]
    assert [cost.path_length for cost in (convolution, recurrence, attention)] == [n / 3, n, 1]


def test_words_that_are_far_apart(lines):
    x = array(1, 60, 8)

    def sensitivity(layer, x):
        """Returns how much the last output moves when each word does, by differences."""
        plain, moved = numpy(layer(x))[0, -1], []
        for place in range(x.shape[1]):
            changed = x.copy()
            changed[0, place] += 0.1
            moved.append(np.abs(numpy(layer(changed))[0, -1] - plain).max())
        return moved

    gru = keras.layers.GRU(8, return_sequences=True)
    attention = layers.MultiHeadAttention(num_heads=2, key_dim=4)
    attention(x, x)
    far = lines(sensitivity=sensitivity, x=x, gru=gru, attention=lambda x: attention(x, x))["far"]
    assert far["gru"] < 1e-5 < 1e-4 < far["attention"]
