"""Recurrent attention, as it is taught."""

import numpy as np
from introductions.conftest import array, close, numpy, softmax
from support.commands import parse

import zoo
from zoo import layers
from zoo.vocabulary import END, START

SMALL = {"source_vocab_size": 13, "target_vocab_size": 13, "embedding_dim": 4, "units": 6, "readout_units": 3}
S, H = array(1, 2, 6), array(1, 5, 6)


def test_the_context_vector(lines):
    names = lines(s=S, h=H)
    alpha = numpy(names["alpha"])
    close(alpha.sum(axis=-1), 1)
    close(names["c"], alpha @ H)


def additive(score, s, h, bias):
    hidden = np.tanh(s @ numpy(score.query_dense.kernel) + h @ numpy(score.key_dense.kernel) + bias)
    return hidden @ numpy(score.score_dense.kernel)[:, 0]


def test_the_additive_score(lines):
    names = lines(s=S, h=H)
    assert names["e"].shape == (1, 2, 5)
    for use_bias in (True, False):
        score = layers.AdditiveScore(10, use_bias=use_bias)
        result = score(S, H)
        if use_bias:
            score.query_dense.bias.assign(array(10))
            result = score(S, H)
        bias = array(10) if use_bias else 0
        close(result, [[[additive(score, s, h, bias) for h in H[0]] for s in S[0]]])
    assert not names["model"].cell.attention.score.use_bias


def test_the_score_without_v(lines):
    names = lines(s=S, h=H)
    assert np.abs(numpy(names["e"])).max() < 1 and names["e"].shape == (1, 2, 5)
    assert isinstance(names["model"].cell.attention.score, layers.TanhConcatScore)
    assert names["model"].cell.attention.score.key_dense.kernel.shape[-1] == 1


def test_dot_product_attention_between_lstms(lines):
    model = lines()["model"]
    source, target = np.array([[5, 6, 2]], "int32"), np.array([[START, 7]], "int32")
    memory = model.encode(source)
    annotations, s0 = numpy(memory["value"])[0], numpy(memory["start"][0])[0]
    assert annotations.shape[-1] == len(s0) == 32
    close(model.attention(source, target)[0, 0, 0, 0], softmax(annotations @ s0))


def test_luong_s_scores(lines):
    names = lines(s=S, h=H)
    dot, general, concat = names["scores"]
    close(dot, S @ H.swapaxes(1, 2))
    assert {"luong_dot", "luong_general", "luong_concat"} <= set(names["names"])
    score = layers.get_score("multiplicative")
    close(score(S, H), S @ (H @ numpy(score.key_dense.kernel)).swapaxes(1, 2))
    assert general.shape == concat.shape == dot.shape


def test_the_names_of_scores(lines):
    scores = {name: type(score).__name__ for name, score in lines()["scores"].items()}
    assert scores == {
        "bahdanau": "AdditiveScore",
        "multiplicative": "GeneralScore",
        "bilinear": "GeneralScore",
        "vaswani": "ScaledDotScore",
    }


def test_any_similarity(lines):
    dot, cosine, distance = (numpy(output) for output in lines(s=S, h=H)["outputs"])
    close(dot, softmax(S @ H.swapaxes(1, 2)) @ H)
    norms = np.linalg.norm(S, axis=-1)[..., None] * np.linalg.norm(H, axis=-1)[:, None]
    close(cosine, softmax(S @ H.swapaxes(1, 2) / norms) @ H)
    close(distance, softmax(-np.sum((S[:, :, None] - H[:, None]) ** 2, axis=-1)) @ H)


def test_annotations_of_both_directions(lines):
    x = array(1, 4, 3)
    both, model = (lines(x=x)[name] for name in ("both", "model"))
    assert both.shape == (1, 4, 16)
    one_way = model.encoder
    changed = x.copy()
    changed[0, 3] += 1
    encoder = layers.BidirectionalEncoder(units=8, cell_type="lstm")
    before, after = numpy(encoder(x)), numpy(encoder(changed))
    assert np.abs(after[0, 0, 8:] - before[0, 0, 8:]).max() > 1e-4  # the way back has seen the change
    close(after[0, :3, :8], before[0, :3, :8])
    embedded = array(1, 4, model.embedding_dim)
    past = numpy(one_way(embedded))
    embedded[0, 3] += 1
    close(numpy(one_way(embedded))[0, :3], past[0, :3])


def test_the_decoder_s_step(lines):
    y, s0 = array(1, 3), array(1, 8)
    names = lines(h=H, y=y, s0=s0)
    cell = names["cell"]
    context = numpy(names["alpha"]) @ H[0]
    _, (expected,) = cell.cell(np.concatenate([y, context], axis=-1), [s0])
    close(names["states"][0], numpy(expected))


def test_the_output_of_a_step(lines):
    # With the state before the step, the first logits do not depend on what the decoder does; with the new one they do.
    assert lines()["model"].readout_state == "new"
    source, target = np.array([[5, 6, 2]], "int32"), np.array([[START]], "int32")
    differences = {}
    for readout_state in ("previous", "new"):
        model = zoo.create_model("rnnsearch", readout_state=readout_state, attention_units=5, **SMALL)
        before = numpy(model({"source": source, "target": target}))
        model.cell.cell.kernel.assign(array(*model.cell.cell.kernel.shape))
        differences[readout_state] = np.abs(numpy(model({"source": source, "target": target})) - before).max()
    assert differences["previous"] == 0 < differences["new"]


def test_the_first_state(lines):
    starts = {
        kind: numpy(start) for kind, start in lines(source=np.array([[5, 6, 2], [7, 2, 0]], "int32"))["starts"].items()
    }
    assert not starts["zero"].any() and starts["random"].all()
    close(starts["random"][0], starts["random"][1])
    assert np.abs(starts["encoder"][0] - starts["encoder"][1]).max() > 1e-4


def test_one_symbol_at_a_time(lines):
    model = zoo.create_model("rnnsearch", attention_units=5, **SMALL)
    source = np.array([[5, 6, 2]], "int32")
    contexts = lines(model=model, source=source, START=START, STOP=END)["contexts"]
    assert 1 <= len(contexts) <= 20
    for weights in contexts:
        close(numpy(weights).sum(axis=-1), 1)


def test_without_attention(command_lines):
    model = zoo.create_model("rnn_encdec", **SMALL)
    assert not model.attends and model.attention_kinds == ()
    training, evaluation = (parse(module, arguments) for module, arguments in command_lines)
    assert training.model == "rnn_encdec" and evaluation.by == "length"


def test_where_the_decoder_looks(lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = lines()
    assert names["weights"].shape[-2:] == (len(names["target"]), len(names["source"]))
    assert (tmp_path / "attention.png").stat().st_size > 1000


def test_dot_is_faster_and_additive_says_more(lines):
    additive_cost, dot_cost = lines(x=array(1, 100, 64))["costs"]
    assert additive_cost > dot_cost


def test_source_words_do_not_see_each_other(lines):
    names = lines()
    assert names["recurrent"] == ("cross",) and "encoder" in names["kinds"]["transformer_tiny"]
