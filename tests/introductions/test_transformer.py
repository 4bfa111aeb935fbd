"""The Transformer and meaning in context, as they are taught."""

import numpy as np
import pytest
from introductions.conftest import array, close, numpy
from support.commands import parse

import zoo

TINY = {"source_vocab_size": 13, "target_vocab_size": 13, "num_layers": 2, "model_dim": 8, "num_heads": 2}


@pytest.fixture
def model():
    return zoo.create_model("transformer_tiny", **TINY)


def test_encoder_and_decoder(lines):
    names = lines(x=array(1, 5, 8), y=array(1, 3, 8))
    z = numpy(names["z"])
    assert z.shape == (1, 3, 8)
    close(z.mean(axis=-1), 0)  # post-norm: the last thing is a normalisation
    close(z.std(axis=-1), 1, 1e-3)
    changed = array(1, 3, 8).copy()
    changed[0, 2] += 1
    close(numpy(names["decoder"](changed, names["encoder"](names["x"])))[0, :2], z[0, :2])


def test_the_output_layer(lines):
    model = lines()["model"]
    without = zoo.create_model("transformer_tiny", source_vocab_size=99, target_vocab_size=99)
    assert model.count_params() - without.count_params() == 99


def test_what_the_encoder_returns(lines, model):
    vectors = numpy(lines(model=model, source=np.array([[5, 6, 2]], "int32"))["vectors"])
    assert vectors.shape == (1, 3, 8) and np.ptp(vectors, axis=1).max() > 0.01


def test_who_looks_at_whom(lines, model):
    source, target = np.array([[5, 6, 2]], "int32"), np.array([[1, 7]], "int32")
    weights = {
        kind: numpy(value) for kind, value in lines(model=model, source=source, target=target)["weights"].items()
    }
    shapes = {"encoder": (1, 2, 2, 3, 3), "cross": (1, 2, 2, 2, 3), "decoder": (1, 2, 2, 2, 2)}
    assert {kind: value.shape for kind, value in weights.items()} == shapes
    assert all(np.allclose(value.sum(axis=-1), 1, atol=1e-5) for value in weights.values())


def test_a_picture_of_the_architecture(lines):
    diagrams = lines()["diagrams"]
    assert all(svg.lstrip().startswith("<svg") for svg in diagrams.values())
    assert {name: "ttention" in svg for name, svg in diagrams.items()} == {
        "rnn_encdec": False,
        "rnnsearch": True,
        "transformer_base": True,
    }


def test_the_two_apples(lines):
    names = lines()
    assert [answer.label for answer in names["answers"]] == ["apple.fruit", "apple.company"]
    assert all(answer.probabilities.max() >= 0.9 for answer in names["answers"])


def test_one_word_and_its_vectors(lines):
    cosines = lines()["comparison"].cosines
    assert cosines[0, 1] >= 0.8 and cosines[0, 2] <= 0.5 and cosines[1, 2] <= 0.5


def test_what_the_word_looks_at(command_lines):
    ((module, arguments),) = command_lines
    assert str(parse(module, arguments).heatmap) == "apple.png"


def test_static_and_contextual_vectors(lines):
    names = lines(run=zoo.load("preset:senses_self_attention_classifier"))
    place = names["tokens"].index("▁apple")
    for contextual in (False, True):
        ((tokens, vectors),) = names["run"].embed(["I updated my Apple phone to the latest version."], contextual)
        here = names["contextual" if contextual else "static"][place]
        assert np.allclose(vectors[tokens.index("▁apple")], here) != contextual


def test_better_with_context(command_lines):
    static, contextual = (parse(*command) for command in command_lines)
    assert (static.model, contextual.model) == ("cnn_classifier", "self_attention_classifier")
    model = zoo.create_model(
        "cnn_classifier", vocab_size=13, num_classes=2, filter_widths="1", embedding_dim=8, num_filters=7
    )
    first, second = (numpy(model.represent(np.array([[5, other, 2]], "int32")))[0, 0] for other in (6, 7))
    close(first, second)  # whatever stands beside it


def test_the_cat_sat_on_the_mat(lines):
    names = lines()
    tokens, weights = names["tokens"], names["weights"]
    sat, cat = tokens.index("▁sat"), tokens.index("▁cat")
    assert weights[0, 0, sat].argmax() == cat and weights[0, 0, sat, cat] > 0.5
