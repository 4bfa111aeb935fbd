"""The Transformer, as it is taught."""

import numpy as np
import pytest
from introductions.conftest import array, close, long, numpy
from support.commands import parse

import zoo
from training.config.recipes import recipe

TINY = {"source_vocab_size": 13, "target_vocab_size": 13, "num_layers": 2, "model_dim": 8, "num_heads": 2}
SOURCE, TARGET = np.array([[5, 6, 2]], "int32"), np.array([[1, 7]], "int32")
ENCODED = array(1, 5, 8)


@pytest.fixture(scope="module")
def model():
    return zoo.create_model("transformer_tiny", **TINY)


def normalized(x):
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


def row_the_encoder_s_layer(lines):
    names = lines(x=ENCODED)
    layer = names["layer"]
    z = normalized(ENCODED + numpy(layer.attention(ENCODED, ENCODED)))
    w_1, b_1, w_2, b_2 = map(numpy, layer.feed_forward.weights)
    close(names["z"], normalized(z + np.maximum(z @ w_1 + b_1, 0) @ w_2 + b_2), 1e-4)


@long
def row_n_layers(lines):
    model = lines()["model"]
    assert len(model.encoder_blocks) == len(model.decoder_blocks) == 6
    first, second = (model.encoder_blocks[i].attention.head_kernels()["query"] for i in (0, 1))
    assert np.abs(numpy(first) - numpy(second)).max() > 0


def row_the_decoder_sees_its_past(lines):
    y = array(1, 3, 8)
    later = y.copy()
    later[0, 2] += 1
    names = lines(x=ENCODED, y=y, later_changed=later)
    close(numpy(names["changed"])[0, :2], numpy(names["z"])[0, :2])
    assert np.abs(numpy(names["changed"]) - numpy(names["z"]))[0, 2].max() > 1e-3


def row_the_decoder_looks_at_the_encoder(lines):
    y = array(1, 3, 8)
    names = lines(x=ENCODED, y=y)
    assert names["masked"].shape == (1, 2, 3, 3) and names["cross"].shape == (1, 2, 3, 5)
    assert np.abs(numpy(names["layer"](y, ENCODED + 1)) - numpy(names["z"])).max() > 1e-3


def row_normalization_first(lines):
    vectors = numpy(lines()["model"].represent(SOURCE))
    close(vectors.mean(axis=-1), 0)
    close(vectors.std(axis=-1), 1, 1e-2)


def row_what_a_recipe_changes(command_lines):
    arguments = parse(*command_lines[0])
    assert recipe(arguments.model, arguments.data)["model"]["normalize_first"] is True


def row_the_output_layer(lines):
    of_words = [weight.path for weight in lines()["model"].weights if weight.shape == (99,)]
    assert len(of_words) == 1 and "output" in of_words[0]


def row_what_the_encoder_returns(lines, model):
    vectors = numpy(lines(model=model, source=SOURCE)["vectors"])
    assert vectors.shape == (1, 3, 8) and np.ptp(vectors, axis=1).max() > 0.01


def check_weights(weights, shape):
    assert weights.shape == shape
    close(numpy(weights).sum(axis=-1), 1)


def row_the_encoder_s_self_attention(lines, model):
    check_weights(lines(model=model, source=SOURCE, target=TARGET)["weights"], (1, 2, 2, 3, 3))


def row_the_decoder_s_self_attention(lines, model):
    weights = lines(model=model, source=SOURCE, target=TARGET)["weights"]
    check_weights(weights, (1, 2, 2, 2, 2))
    assert not np.triu(numpy(weights), 1).any()


def row_attention_from_target_to_source(lines, model):
    check_weights(lines(model=model, source=SOURCE, target=TARGET)["weights"], (1, 2, 2, 2, 3))


def row_the_attention_of_a_language_model(lines):
    names = lines()
    weights = names["weights"]
    assert weights.shape[-1] == weights.shape[-2] == len(names["tokens"]) and not np.triu(weights, 1).any()


def row_the_cat_sat_on_the_mat(lines):
    names = lines()
    tokens, weights = names["tokens"], names["weights"]
    sat, cat = tokens.index("▁sat"), tokens.index("▁cat")
    assert weights[0, 0, sat].argmax() == cat and weights[0, 0, sat, cat] > 0.5


def check_diagram(svg, attends):
    assert svg.lstrip().startswith("<svg") and ("ttention" in svg) == attends


def row_a_diagram_of_the_encoder_decoder(lines):
    check_diagram(lines()["svg"], attends=False)


def row_a_diagram_of_recurrent_attention(lines):
    check_diagram(lines()["svg"], attends=True)


@long
def row_a_diagram_of_the_transformer(lines):
    check_diagram(lines()["svg"], attends=True)


def test_rows(check_rows):
    check_rows()


@pytest.mark.nightly
def test_long_rows(check_rows):
    check_rows(are_long=True)
