"""Exported translators answer as Python does: one of subwords, and nightly one of characters."""

import numpy as np
import pytest
import tensorflow as tf
from support.exports import ask, refused, texts_of

TEXTS = ["5 mai 1984", "a red horse sleeps and my girl runs .", "x", "", "Σάββατο 4 Οκτωβρίου 1986", "۴\u200d😀 ß…"]
STRANGE = [b"\xff\xfe\x00broken \xe2\x82", b"", b"\x00", b" ", "\n\r\u2028".encode(), b"<pad></s>"]
TARGETS = ["1984-05-05", "ein pferd", "", "x", "5", "mädchen 😀"]


@pytest.fixture(params=["text", pytest.param("dates", marks=pytest.mark.nightly)])
def case(request):
    """Python takes long to compile each way of decoding of the recurrent model."""
    return request.getfixturevalue(f"{request.param}_case")


def test_translations(case):
    """Of texts together, one by one, beside strange neighbours, and none."""
    answers, best = case.run.translate(TEXTS), case.run.nbest(TEXTS, beam_size=1)
    assert len(set(answers)) > 1, "the answers depend on the texts"
    outputs = case.ask(TEXTS)
    assert texts_of(outputs["text"]) == answers
    assert outputs["log_prob"].dtype == np.float32 and (outputs["log_prob"] < 0).all()
    np.testing.assert_allclose(outputs["log_prob"], [each.log_prob for each, *_ in best], rtol=1e-4)
    assert [case.translate([text])[0] for text in TEXTS] == answers
    readable = [text.decode("utf-8", "replace") for text in STRANGE]
    assert case.translate([TEXTS[0], *STRANGE, TEXTS[1]]) == [answers[0], *case.run.translate(readable), answers[1]]
    assert {len(values) for values in case.ask([]).values()} == {0}


def test_attention(case):
    """Rows sum to one over real tokens, and padding is zero."""
    outputs = case.ask(TEXTS, "attention")
    assert texts_of(outputs["text"]) == case.run.translate(TEXTS)
    source, target = outputs["source_tokens"] != b"", outputs["target_tokens"] != b""
    config = case.run.config["model"]
    sizes = config.get("num_layers", 1), config.get("num_heads", 1), target.shape[1], source.shape[1]
    assert outputs["attention"].shape == (len(TEXTS), *sizes) and outputs["attention"].dtype == np.float32
    assert source.all(axis=1).any() and target.all(axis=1).any(), "as wide as the longest row"
    assert not source.all() and not target.all(), "there is padding"
    for row, (sources, targets, expected) in enumerate(case.run.attention(TEXTS)):
        weights, is_source, is_target = outputs["attention"][row], source[row], target[row]
        assert texts_of(outputs["source_tokens"][row][is_source]) == sources
        assert texts_of(outputs["target_tokens"][row][is_target]) == targets
        np.testing.assert_allclose(weights[:, :, is_target][..., is_source], expected, atol=1e-5)
        np.testing.assert_allclose(expected.sum(axis=-1), 1.0, rtol=1e-5)
        assert (weights[..., ~is_source] == 0).all() and (weights[:, :, ~is_target] == 0).all()
    assert {len(values) for values in case.ask([], "attention").values()} == {0}


def test_several_answers_and_scores(case):
    outputs = case.ask(TEXTS, "nbest")
    for row, hypotheses in enumerate(case.run.nbest(TEXTS, beam_size=5)):
        assert texts_of(outputs["texts"][row]) == [each.text for each in hypotheses]
        np.testing.assert_allclose(outputs["log_probs"][row], [each.log_prob for each in hypotheses], rtol=1e-4)
    assert {array.shape for array in case.ask([], "nbest").values()} == {(0, 5)}
    scores = ask(case.model, "score", source=TEXTS, target=TARGETS)["log_prob"]
    np.testing.assert_allclose(scores, case.run.score(TEXTS, TARGETS), rtol=1e-4)
    assert ask(case.model, "score", source=[], target=[])["log_prob"].shape == (0,)
    for sizes in ((1, 3), (3, 1), (0, 1)):  # else a Transformer would score one source with each of several targets
        pair = dict(zip(("source", "target"), (["x"] * size for size in sizes), strict=True))
        refused(ask, case.model, "score", **pair, naming=("source", "target", "[{} {}]".format(*sizes)))


def test_a_recurrent_model_of_characters(preset_case):
    """Each side has a vocabulary of its own; and Python loads it: `tf.saved_model.load`."""
    answers = preset_case.run.translate(TEXTS)
    assert answers[0] == "1984-05-05" and preset_case.translate(TEXTS) == answers
    scores = ask(preset_case.model, "score", source=TEXTS, target=TARGETS)["log_prob"]
    np.testing.assert_allclose(scores, preset_case.run.score(TEXTS, TARGETS), rtol=1e-4)
    loaded = tf.saved_model.load(str(preset_case.path)).signatures["serving_default"](text=tf.constant(TEXTS))
    assert texts_of(loaded["text"].numpy()) == answers
