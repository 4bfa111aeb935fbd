"""Recurrent attention, as it is taught."""

import numpy as np
import pytest
from introductions.conftest import array, close, long, numpy, softmax
from support.commands import parse

import zoo
from zoo import layers
from zoo.vocabulary import END, START

SMALL = {"source_vocab_size": 13, "target_vocab_size": 13, "embedding_dim": 4, "units": 6, "readout_units": 3}
S, H = array(1, 2, 6), array(1, 5, 6)
SOURCE = np.array([[5, 6, 2], [7, 2, 0]], "int32")


def row_the_context_vector(lines):
    names = lines(s=S, h=H)
    close(names["c"], numpy(names["alpha"]) @ H)


def row_weights_that_sum_to_one(lines):
    names = lines(s=S, h=H)
    close(names["alpha"], softmax(names["e"]))
    close(names["alpha"].sum(axis=-1), 1)


def additive(score, s, h, bias=0):
    hidden = np.tanh(s @ numpy(score.query_dense.kernel) + h @ numpy(score.key_dense.kernel) + bias)
    return hidden @ numpy(score.score_dense.kernel)[:, 0]


def row_the_additive_score(lines):
    assert lines(s=S, h=H)["e"].shape == (1, 2, 5)
    score = layers.AdditiveScore(10, use_bias=True)
    score(S, H)
    score.query_dense.bias.assign(array(10))
    close(score(S, H), [[[additive(score, s, h, array(10)) for h in H[0]] for s in S[0]]])


def row_the_additive_score_without_b(lines):
    names = lines(s=S, h=H)
    score = layers.AdditiveScore(10, use_bias=False)
    close(score(S, H), [[[additive(score, s, h) for h in H[0]] for s in S[0]]])
    assert names["e"].shape == (1, 2, 5) and not names["model"].cell.attention.score.use_bias


def row_the_score_without_v(lines):
    names = lines(s=S, h=H)
    assert np.abs(numpy(names["e"])).max() < 1
    score = layers.get_score("tanh_concat")
    score(S, H)
    w = [numpy(dense.kernel)[:, 0] for dense in (score.query_dense, score.key_dense)]
    close(score(S, H), [[[np.tanh(s @ w[0] + h @ w[1]) for h in H[0]] for s in S[0]]])
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


def row_dot_product_attention_between_lstms(lines):
    model = lines()["model"]
    source, target = np.array([[5, 6, 2]], "int32"), np.array([[START, 7]], "int32")
    memory = model.encode(source)
    annotations, s0 = numpy(memory["value"])[0], numpy(memory["start"][0])[0]
    assert annotations.shape[-1] == len(s0) == 32
    close(model.attention(source, target)[0, 0, 0, 0], softmax(annotations @ s0))


def row_luong_s_dot_score(lines):
    names = lines(s=S, h=H)
    close(names["e"], S @ H.swapaxes(1, 2))
    assert not names["score"].weights


def row_luong_s_general_score(lines):
    names = lines(s=S, h=H)
    close(names["e"], S @ (H @ numpy(names["score"].key_dense.kernel)).swapaxes(1, 2))


def row_luong_s_concat_score(lines):
    names = lines(s=S, h=H)
    score = names["score"]
    w = np.concatenate([numpy(score.query_dense.kernel), numpy(score.key_dense.kernel)])
    v = numpy(score.score_dense.kernel)[:, 0]
    close(names["e"], [[[np.tanh(np.concatenate([s, h]) @ w) @ v for h in H[0]] for s in S[0]]])


def row_the_names_of_scores(lines):
    scores = {name: type(score).__name__ for name, score in lines()["scores"].items()}
    assert scores == {
        "bahdanau": "AdditiveScore",
        "multiplicative": "GeneralScore",
        "bilinear": "GeneralScore",
        "vaswani": "ScaledDotScore",
    }


def row_the_names_of_models(lines):
    names = lines()
    assert {"luong_dot", "luong_general", "luong_concat"} <= set(names["names"]) and names["paper"].year == 2015
    try:
        zoo.get_spec("bahdanau")
    except ValueError as error:
        assert "Did you mean rnnsearch?" in str(error)


def row_cosine_as_the_score(lines):
    norms = np.linalg.norm(S, axis=-1)[..., None] * np.linalg.norm(H, axis=-1)[:, None]
    close(lines(s=S, h=H)["output"], softmax(S @ H.swapaxes(1, 2) / norms) @ H)


def row_a_score_of_one_s_own(lines):
    close(lines(s=S, h=H)["output"], softmax(-np.sum((S[:, :, None] - H[:, None]) ** 2, axis=-1)) @ H)


def row_a_network_as_the_score(lines):
    layer = layers.Attention(lines()["Network"]())
    output = layer(S, H)
    (w,) = map(numpy, layer.weights)
    close(output, softmax(np.tanh(S @ w @ H.swapaxes(1, 2))) @ H)


def row_annotations_of_both_directions(lines):
    x = array(1, 4, 3)
    assert lines(x=x)["both"].shape == (1, 4, 16)
    changed = x.copy()
    changed[0, 3] += 1
    encoder = layers.BidirectionalEncoder(units=8, cell_type="lstm")
    before, after = numpy(encoder(x)), numpy(encoder(changed))
    assert np.abs(after[0, 0, 8:] - before[0, 0, 8:]).max() > 1e-4  # the way back has seen the change
    close(after[0, :3, :8], before[0, :3, :8])


def row_one_direction(lines):
    model = lines()["model"]
    embedded = array(1, 4, model.embedding_dim)
    past = numpy(model.encoder(embedded))
    embedded[0, 3] += 1
    close(numpy(model.encoder(embedded))[0, :3], past[0, :3])


def row_the_decoder_s_step(lines):
    y, s0 = array(1, 3), array(1, 8)
    names = lines(h=H, y=y, s0=s0)
    context = numpy(names["alpha"]) @ H[0]
    _, (expected,) = names["cell"].cell(np.concatenate([y, context], axis=-1), [s0])
    close(names["states"][0], numpy(expected))


def reads_new_state(readout_state):
    """Returns whether the first logits change with what the decoder's cell does."""
    source, target = SOURCE[:1], np.array([[START]], "int32")
    model = zoo.create_model("rnnsearch", readout_state=readout_state, attention_units=5, **SMALL)
    before = numpy(model({"source": source, "target": target}))
    model.cell.cell.kernel.assign(array(*model.cell.cell.kernel.shape))
    return np.abs(numpy(model({"source": source, "target": target})) - before).max() > 0


def row_the_output_of_a_step(lines):
    assert reads_new_state(lines()["model"].readout_state)


def row_the_output_in_the_paper(lines):
    assert not reads_new_state(lines()["model"].readout_state)


@long
def row_the_first_state(lines):
    starts = {kind: numpy(start) for kind, start in lines(source=SOURCE)["starts"].items()}
    assert not starts["zero"].any() and starts["random"].all()
    close(starts["random"][0], starts["random"][1])
    assert np.abs(starts["encoder"][0] - starts["encoder"][1]).max() > 1e-4


def row_a_random_first_state(lines):
    names = lines(source=SOURCE)
    first, second = numpy(names["first"]), numpy(names["second"])
    assert first.all() and (first == second).all() and (first[0] == first[1]).all()


def row_one_symbol_at_a_time(lines):
    model = zoo.create_model("rnnsearch", attention_units=5, **SMALL)
    contexts = lines(model=model, source=SOURCE[:1], START=START, STOP=END)["contexts"]
    assert 1 <= len(contexts) <= 20
    for weights in contexts:
        close(numpy(weights).sum(axis=-1), 1)


def row_text_in_text_out(lines):
    assert lines()["answers"] == ["1984-05-05"]


def row_one_vector_for_the_whole_sentence(lines):
    names = lines(short=array(1, 3).astype("int32") + 5, long=array(1, 11).astype("int32") + 5)
    assert names["sizes"][3] == names["sizes"][11] == (1, names["model"].units)


def row_long_sentences(command_lines):
    training, evaluation = (parse(*command) for command in command_lines)
    assert training.model == "rnn_encdec" and evaluation.by == "length"
    model = zoo.create_model("rnn_encdec", **SMALL)
    assert not model.attends and model.attention_kinds == ()


def row_where_the_decoder_looks(lines):
    names = lines()
    source, weights = names["source"], names["weights"][0, 0]
    assert weights.shape == (len(names["target"]), len(source))
    year = [source[place] for place in weights[:4].argmax(axis=-1)]
    assert set(year) <= set("1984")


def row_a_picture_of_the_alignment(lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines()
    assert (tmp_path / "attention.png").stat().st_size > 1000


def row_dot_costs_less(lines):
    additive_cost, dot_cost = lines(x=array(1, 100, 64))["costs"]
    assert dot_cost == 100 * 100 * 64 and additive_cost >= dot_cost


def row_dot_is_faster(command_lines):
    from benchmarks.growth import LAYERS

    ((module, arguments),) = command_lines
    additive_layer, dot_layer = (LAYERS[name] for name in arguments[1::2])
    assert module == "benchmarks.growth" and (additive_layer.batch, dot_layer.batch) == (1, 1)


def row_additive_says_more(lines):
    dot, additive_best = lines()["best"]
    assert dot.item() in (0, 2) and additive_best.item() == 1


def row_source_words_do_not_see_each_other(lines):
    names = lines()
    assert names["recurrent"] == ("cross",) and "encoder" in names["kinds"]


def test_rows(check_rows):
    check_rows()


@pytest.mark.nightly
def test_long_rows(check_rows):
    check_rows(are_long=True)
