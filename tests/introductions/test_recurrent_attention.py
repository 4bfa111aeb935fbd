"""Recurrent attention, as it is taught."""

import numpy as np
import pytest
from introductions.conftest import array, close, numpy, softmax
from introductions.page import numbers
from support.commands import parse

import zoo
from zoo import layers
from zoo.vocabulary import END, START

SMALL = {"source_vocab_size": 13, "target_vocab_size": 13, "embedding_dim": 4, "units": 6, "readout_units": 3}
SOURCE = np.array([[5, 6, 2]], "int32")


def row_the_context_vector(names):
    close(names["c"], numpy(names["alpha"]) @ names["h"])


def row_weights_that_sum_to_one(names):
    close(names["alpha"], softmax(names["e"]))
    close(names["alpha"].sum(axis=-1), 1)


def additive(score, s, h, bias=0):
    """Returns e, [1, T, S], a pair at a time."""
    w_1, w_2, v = (numpy(dense.kernel) for dense in (score.query_dense, score.key_dense, score.score_dense))
    return [[[np.tanh(query @ w_1 + key @ w_2 + bias) @ v[:, 0] for key in h[0]] for query in s[0]]]


def row_the_additive_score(names):
    s, h, score = names["s"], names["h"], names["score"]
    close(names["e"], additive(score, s, h))  # b begins at zero
    score.query_dense.bias.assign(array(10))
    close(score(s, h), additive(score, s, h, array(10)))


def row_the_additive_score_without_b(names):
    close(names["e"], additive(names["score"], names["s"], names["h"]))
    for score in (names["score"], names["model"].cell.attention.score):
        assert not score.use_bias and len(score.weights) == 3


def row_the_score_without_v(names):
    s, h, score = names["s"], names["h"], names["score"]
    w_s, w_h, b = (numpy(part) for part in (score.query_dense.kernel, score.key_dense.kernel, score.query_dense.bias))
    w = np.concatenate([w_s, w_h])[:, 0]
    close(names["e"], [[[np.tanh(np.concatenate([query, key]) @ w + b[0]) for key in h[0]] for query in s[0]]])
    assert isinstance(names["model"].cell.attention.score, layers.TanhConcatScore)


def row_any_score_in_a_model(command_lines):
    for command in command_lines:
        arguments = parse(*command)
        (setting,) = arguments.set
        option, _, score = setting.partition("=")
        sizes = {name: size for name, size in SMALL.items() if name != "readout_units"}
        model = zoo.create_model(arguments.model, **{option.removeprefix("model."): score}, **sizes)
        assert type(model.cell.attention.score) is type(layers.get_score(score))
    told = zoo.get_spec("rnnsearch").options.declared()["score"].meaning
    assert "tanh_concat" in told and "general" in told


def row_dot_product_attention_between_lstms(names):
    model = names["model"]
    source, target = np.array([[5, 6, 2]], "int32"), np.array([[START, 7]], "int32")
    memory = model.encode(source)
    annotations, s0 = numpy(memory["value"])[0], numpy(memory["start"][0])[0]
    assert annotations.shape[-1] == len(s0) == 32
    close(model.attention(source, target)[0, 0, 0, 0], softmax(annotations @ s0))


def row_luong_s_dot_score(names):
    s, h = names["s"], names["h"]
    close(names["e"], s @ h.swapaxes(1, 2))
    assert not names["score"].weights


def row_luong_s_general_score(names):
    s, h = names["s"], names["h"]
    close(names["e"], s @ (h @ numpy(names["score"].key_dense.kernel)).swapaxes(1, 2))


def row_luong_s_concat_score(names):
    s, h = names["s"], names["h"]
    score = names["score"]
    w = np.concatenate([numpy(score.query_dense.kernel), numpy(score.key_dense.kernel)])
    v = numpy(score.score_dense.kernel)[:, 0]
    close(names["e"], [[[np.tanh(np.concatenate([query, key]) @ w) @ v for key in h[0]] for query in s[0]]])


def row_the_names_of_scores(names):
    scores = {name: type(score).__name__ for name, score in names["scores"].items()}
    assert scores == {
        "bahdanau": "AdditiveScore",
        "multiplicative": "GeneralScore",
        "bilinear": "GeneralScore",
        "vaswani": "ScaledDotScore",
    }


def row_the_names_of_models(names):
    assert {"luong_dot", "luong_general", "luong_concat"} <= set(names["names"]) and names["paper"].year == 2015
    try:
        zoo.get_spec("bahdanau")
    except ValueError as error:
        assert "Did you mean rnnsearch?" in str(error)


def row_cosine_as_the_score(names):
    s, h = names["s"], names["h"]
    norms = np.linalg.norm(s, axis=-1)[..., None] * np.linalg.norm(h, axis=-1)[:, None]
    close(names["output"], softmax(s @ h.swapaxes(1, 2) / norms) @ h)


def row_a_score_of_one_s_own(names):
    s, h = names["s"], names["h"]
    close(names["output"], softmax(-np.sum((s[:, :, None] - h[:, None]) ** 2, axis=-1)) @ h)


def row_a_network_as_the_score(names):
    s, h = names["s"], names["h"]
    layer = layers.Attention(names["Network"]())
    output = layer(s, h)
    (w,) = map(numpy, layer.weights)
    close(output, softmax(np.tanh(s @ w @ h.swapaxes(1, 2))) @ h)


def row_annotations_of_both_directions(names):
    assert names["both"].shape == (1, 5, 16)
    changed = names["x"].copy()
    changed[0, 4] += 1
    before, after = numpy(names["both"]), numpy(names["encoder"](changed))
    assert np.abs(after[0, 0, 8:] - before[0, 0, 8:]).max() > 1e-5  # the way back has seen the change
    close(after[0, :4, :8], before[0, :4, :8])


def row_one_direction(names):
    model = names["model"]
    embedded = array(1, 4, model.embedding_dim)
    past = numpy(model.encoder(embedded))
    embedded[0, 3] += 1
    close(numpy(model.encoder(embedded))[0, :3], past[0, :3])


def row_the_decoder_s_step(names):
    context = numpy(names["alpha"]) @ names["h"][0]
    _, (expected,) = names["cell"].cell(np.concatenate([names["y"], context], axis=-1), [names["s0"]])
    close(names["states"][0], numpy(expected))


def reads_new_state(model):
    """Returns whether the first logits change with what the decoder's cell does."""
    inputs, kernel = (SOURCE, np.array([[START]], "int32")), model.cell.cell.kernel
    before, weights = numpy(model(inputs)), numpy(kernel)
    kernel.assign(array(*kernel.shape))
    after = numpy(model(inputs))
    kernel.assign(weights)
    return np.abs(after - before).max() > 0


def row_the_output_of_a_step(names):
    assert reads_new_state(names["model"])


def row_the_output_in_the_paper(names, printed):
    assert not reads_new_state(names["rnnsearch"])
    assert names["rnnsearch"].readout_state == names["option"].default and "s_{i−1}, as in the paper" in printed


def row_the_first_state(names):
    starts = {kind: numpy(start) for kind, start in names["starts"].items()}
    assert not starts["zero"].any() and starts["random"].all()
    other = np.array([[7, 8, 2]], "int32")
    changes = {kind: numpy(model.encode(other)["start"][0]) - starts[kind] for kind, model in names["models"].items()}
    assert [kind for kind, change in changes.items() if change.any()] == ["encoder"]
    learned, zero = (names["models"][kind] for kind in ("learned", "zero"))
    assert len(learned.trainable_weights) == len(zero.trainable_weights) + 1


def row_a_random_first_state(names):
    first, second = numpy(names["first"]), numpy(names["second"])
    assert first.all() and (first == second).all()


def row_one_token_at_a_time(names):
    contexts, source = names["contexts"], names["source"]
    assert len(contexts) == 20 or names["fed"][-1] == END
    fed = np.array([names["fed"][:-1]], "int32")  # as in training: all at once, and the same comes out
    close(np.reshape(contexts, (len(contexts), -1)), numpy(names["rnnsearch"].attention(source, fed))[0, 0, 0])
    assert names["fed"] == [START, *numpy(names["rnnsearch"]((source, fed)))[0].argmax(axis=-1)]


def row_text_in_text_out(names):
    assert names["answers"] == ["1984-05-05"]


def row_one_vector_for_the_whole_sentence(names):
    assert names["shapes"] == [(1, names["model"].units)] * 2


def row_long_sentences(command_lines):
    training, evaluation = (parse(*command) for command in command_lines)
    assert training.model == "rnn_encdec" and evaluation.by == "length"
    model = zoo.create_model("rnn_encdec", **SMALL)
    assert not model.attends and model.attention_kinds == ()


def row_where_the_decoder_looks(names):
    source, weights = names["source_tokens"], names["weights"][0, 0]
    assert weights.shape == (len(names["target_tokens"]), len(source))
    year = [source[place] for place in weights[:4].argmax(axis=-1)]
    assert set(year) <= set("1984")


def row_a_picture_of_the_alignment(pictures):
    assert (pictures / "attention.png").stat().st_size > 1000


def row_dot_costs_less(printed):
    length, size = 100, 64
    scores, pairs = length**2 * size, length**2
    projections, softmaxes = 2 * length * size**2, pairs + length * (length - 1)  # e^x, and the largest of each row
    dot = [scores, 2 * scores + pairs, softmaxes, 0]  # a division for each weight; the weighted sum
    additive_costs = [scores, dot[1] + projections, scores + softmaxes, 2 * size**2 + 2 * size]  # tanh; W₁, W₂, b, v
    assert numbers(printed) == [*additive_costs, *dot]


def row_dot_is_faster(command_lines):
    from benchmarks.growth import LAYERS

    ((module, arguments),) = command_lines
    additive_layer, dot_layer = (LAYERS[name] for name in parse(module, arguments).layer)
    assert module == "benchmarks.growth" and (additive_layer.batch, dot_layer.batch) == (1, 1)


def row_additive_is_more_expressive(names):
    dot, additive_best = names["best"]
    assert dot.item() in (0, 2) and additive_best.item() == 1


def row_source_words_do_not_attend_to_each_other(names):
    assert names["recurrent"] == ("cross",) and "encoder" in names["kinds"]


@pytest.mark.nightly
def test_rows(check_rows):
    check_rows()
