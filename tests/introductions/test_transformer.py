"""The Transformer, as it is taught."""

import numpy as np
import pytest
from introductions.conftest import close, numpy
from support.commands import parse

from training.config.recipes import recipe

SOURCE = np.array([[5, 6, 2]], "int32")


def normalized(x):
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


def row_the_encoder_s_layer(names):
    layer, x = names["layer"], names["x"]
    z = normalized(x + numpy(layer.attention(x, x)))
    w_1, b_1, w_2, b_2 = map(numpy, layer.feed_forward.weights)
    close(names["z"], normalized(z + np.maximum(z @ w_1 + b_1, 0) @ w_2 + b_2), 1e-4)


def row_n_layers(names):
    model = names["model"]
    assert len(model.encoder_blocks) == len(model.decoder_blocks) == 6
    first, second = (model.encoder_blocks[i].attention.head_kernels()["query"] for i in (0, 1))
    assert np.abs(numpy(first) - numpy(second)).max() > 0


def row_the_decoder_attends_to_its_past(names):
    close(names["later"][:, :2], names["y"][:, :2])
    close(numpy(names["changed"])[0, :2], numpy(names["z"])[0, :2])
    assert np.abs(numpy(names["changed"]) - numpy(names["z"]))[0, 2].max() > 1e-3


def row_the_decoder_attends_to_the_encoder(names):
    assert names["masked"].shape == (1, 2, 3, 3) and names["cross"].shape == (1, 2, 3, 5)
    assert np.abs(numpy(names["layer"](names["y"], names["x"] + 1)) - numpy(names["z"])).max() > 1e-3


def row_normalization_first(names):
    vectors = numpy(names["model"].represent(SOURCE))
    close(vectors.mean(axis=-1), 0)
    close(vectors.std(axis=-1), 1, 1e-2)


def row_what_a_recipe_changes(command_lines):
    arguments = parse(*command_lines[0])
    assert recipe(arguments.model, arguments.data)["model"]["normalize_first"] is True


def row_the_output_layer(names):
    of_words = [weight.path for weight in names["model"].weights if weight.shape == (99,)]
    assert len(of_words) == 1 and "output" in of_words[0]


def row_what_the_encoder_returns(names):
    vectors = numpy(names["vectors"])
    assert vectors.shape == (1, 3, 8) and np.ptp(vectors, axis=1).max() > 0.01


def check_weights(weights, shape):
    assert weights.shape == shape
    close(numpy(weights).sum(axis=-1), 1)


def row_the_encoder_s_self_attention(names):
    check_weights(names["weights"], (1, 2, 2, 3, 3))


def row_the_decoder_s_self_attention(names):
    weights = names["weights"]
    check_weights(weights, (1, 2, 2, 2, 2))
    assert not np.triu(numpy(weights), 1).any()


def row_attention_from_target_to_source(names):
    check_weights(names["weights"], (1, 2, 2, 2, 3))


def row_the_attention_of_a_language_model(names):
    weights = names["weights"]
    assert weights.shape[-1] == weights.shape[-2] == len(names["tokens"]) and not np.triu(weights, 1).any()


def row_the_cat_sat_on_the_mat(names):
    tokens, weights = names["tokens"], names["weights"]
    sat, cat = tokens.index("▁sat"), tokens.index("▁cat")
    assert weights[0, 0, sat].argmax() == cat and weights[0, 0, sat, cat] > 0.5


def check_diagram(svg, attends):
    assert svg.lstrip().startswith("<svg") and ("ttention" in svg) == attends


def row_a_diagram_of_the_encoder_decoder(names):
    check_diagram(names["svg"], attends=False)


def row_a_diagram_of_recurrent_attention(names):
    check_diagram(names["svg"], attends=True)


def row_a_diagram_of_the_transformer(names):
    check_diagram(names["svg"], attends=True)


@pytest.mark.nightly
def test_rows(check_rows):
    check_rows()
