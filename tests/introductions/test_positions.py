"""Order and positions, as they are taught."""

import numpy as np
import pytest
from introductions.conftest import array, close, numpy, softmax
from introductions.page import numbers
from support.commands import parse

import zoo
from zoo import layers

DISTANCES = np.arange(5)[None, :] - np.arange(5)[:, None]


def sinusoids(length, size):
    angles = np.arange(length)[:, None] / 10_000 ** (2 * np.arange(size // 2) / size)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, size)


def row_a_bag_of_words(names):
    x = names["x"]
    close(names["permuted"], numpy(names["y"])[:, ::-1])
    ordered = layers.MultiHeadAttention(num_heads=2, key_dim=4, positions=layers.RotaryPositions())
    assert np.abs(numpy(ordered(x[:, ::-1], x[:, ::-1])) - numpy(ordered(x, x))[:, ::-1]).max() > 1e-3


def row_sinusoids(names):
    close(names["p"], sinusoids(50, 16))


def row_positions_that_are_added(names):
    close(names["y"], names["x"] + sinusoids(5, 8))


def row_learned_positions(names):
    close(numpy(names["y"]) - names["x"], numpy(names["layer"].weights[0])[None, :5])
    assert names["layer"].trainable_weights


def check_twins(command_lines, positions):
    train, evaluate = command_lines
    arguments = parse(*train)
    assert (train[0], arguments.data, arguments.set) == (
        "training.train",
        "senses:twins",
        [f"model.positions={positions}"],
    )
    assert evaluate[0] == "training.evaluate" and parse(*evaluate).data == arguments.data


def row_order_is_learned(command_lines):
    check_twins(command_lines, "sinusoidal")  # trained in test_order_is_learned.py


def row_order_without_positions(command_lines):
    check_twins(command_lines, "none")


def row_the_scale_of_embeddings(names):
    sizes = {"source_vocab_size": 13, "target_vocab_size": 13, "num_layers": 1, "model_dim": 8, "num_heads": 2}
    assert not names["model"].scale_embeddings
    scaled = zoo.create_model("transformer_tiny", **sizes)
    plain = zoo.create_model("transformer_tiny", scale_embeddings=False, **sizes)
    plain.set_weights(scaled.get_weights())
    embedding = plain.target_embedding
    embedding.embeddings.assign(numpy(embedding.embeddings) * 8**0.5)
    source = np.array([[5, 6, 2]], "int32")
    close(plain.represent(source), numpy(scaled.represent(source)))


def row_integers_as_positions(names):
    close(names["y"], names["x"] + np.arange(5)[:, None])
    assert names["model"].positions == "integer"


def row_normalized_integers(names, printed):
    close(names["y"], names["x"] + np.arange(5)[:, None] / 4)
    assert numbers(printed) == [0, 0.25, 0.5, 0.75, 1, 1, 1]
    assert names["model"].positions == "integer_normalized"


def row_why_not_integers(names):
    integers, sinusoidal = names["largest"]
    assert integers == 999 and sinusoidal <= 1
    close(names["steps"], [1 / 9, 1 / 999])


def row_positions_that_are_concatenated(names):
    close(names["y"], np.concatenate([names["x"], sinusoids(5, 4)[None]], axis=-1))
    model = names["model"]
    assert model.encoder_blocks[0].attention.query_dense.kernel.shape[0] == 2 * model.model_dim


def row_concatenated_and_back_to_d(names):
    model = names["model"]
    assert numpy(model.represent(np.array([[5, 6, 2]], "int32"))).shape == (1, 3, model.model_dim)


def row_a_picture_of_p(names):
    picture = names["figure"].axes[0].images[0].get_array()
    close(picture, sinusoids(50, 64))


def row_the_frequency_of_each_dimension(names):
    close(names["frequencies"], 10_000 ** (-2 * np.arange(32) / 64))


def row_the_four_terms(names):
    x, p, terms = names["x"][0], names["p"], names["terms"]
    assert np.abs(x - p).max() > 0.1
    parts = [x @ x.T, x @ p.T, p @ x.T, p @ p.T]
    for term, expected in zip(terms.values(), parts, strict=True):
        close(term, expected)
    close(sum(numpy(term) for term in terms.values()), (x + p) @ (x + p).T, 1e-4)


def row_relative_positions(names):
    layer, trace = names["layer"], zoo.trace(names["layer"], names["x"])
    vectors = numpy(layer.positions.key_embeddings)[np.clip(DISTANCES, -3, 3) + 3]  # a_ij
    e = np.einsum("nih,nijh->nij", trace["query"][0], trace["key"][0][:, None] + vectors) / 2
    close(trace["weights"][0], softmax(e))


def row_the_biases_of_t5(names):
    layer = names["layer"]
    for weight in layer.positions.weights:  # they begin at zero
        weight.assign(array(*weight.shape))
    bias = zoo.trace(layer, names["x"])["position_bias"].reshape(2, 5, 5)
    for distance in range(-4, 5):
        of_head = np.diagonal(bias, distance, axis1=1, axis2=2)
        close(of_head, np.repeat(of_head[:, :1], of_head.shape[1], axis=1))
    assert len(np.unique(bias[0].round(5))) == 9


def row_rotary_positions(names):
    products = names["products"][0]
    close(products[:, 1:, 1:], products[:, :-1, :-1])
    assert np.abs(products[:, 0, 1] - products[:, 0, 0]).min() > 1e-4
    for turned, before in zip(names["turned"], (names["one"], names["other"]), strict=True):
        close(np.linalg.norm(turned, axis=-1), np.linalg.norm(before, axis=-1))


def row_alibi(names):
    slopes = np.array([2**-4, 2**-8])
    close(names["bias"].reshape(2, 5, 5), -slopes[:, None, None] * np.abs(DISTANCES))


def row_positions_of_a_model(names):
    models, source = names["models"], np.array([[5, 6, 5, 2]], "int32")
    assert {kind: model.positions for kind, model in models.items()} == {kind: kind for kind in models}
    first, _, third, _ = numpy(models["none"].represent(source))[0]
    close(first, third)  # one word at two places
    for model in (model for kind, model in models.items() if kind != "none"):
        for weight in model.weights:  # the paper's tables begin at zero
            weight.assign_add(array(*weight.shape) / 10)
        first, _, third, _ = numpy(model.represent(source))[0]
        assert np.abs(first - third).max() > 1e-3


@pytest.mark.nightly
def test_rows(check_rows):
    check_rows()
