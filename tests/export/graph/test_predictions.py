"""What `attention_all` says of each symbol, and of answers other than the best."""

import re

import numpy as np
import pytest
from support.exports import Case, RequestError

from export.graph.attention_weights import ALL

TEXTS = ["the horse sees a girl", "", "red"]


@pytest.fixture(scope="module")
def text_case(text_run, text_export):
    return Case(text_run, text_export)


def strings(values):
    return [value.decode() for value in values]


def asked(case, texts, *numbers):
    return case.ask(texts, "attention_nbest", hypothesis=np.array(numbers, np.int32))


def test_symbols_of_the_best_answer(text_case):
    outputs = text_case.ask(TEXTS, "attention_all")
    best = [answers[0] for answers in text_case.run.nbest(TEXTS, beam_size=1)]
    for row, predictions in enumerate(text_case.run.predictions(TEXTS, best)):
        count = len(predictions)
        assert strings(outputs["target_tokens"][row][:count]) == [prediction.token for prediction in predictions]
        expected = [prediction.log_prob for prediction in predictions]
        np.testing.assert_allclose(outputs["token_log_probs"][row][:count], expected, atol=1e-4)
        assert not outputs["token_log_probs"][row][count:].any()
        for place, prediction in enumerate(predictions):
            assert strings(outputs["alternatives"][row][place]) == [token for token, _ in prediction.alternatives]
            values = [value for _, value in prediction.alternatives]
            np.testing.assert_allclose(outputs["alternative_log_probs"][row][place], values, atol=1e-4)
    scores = text_case.ask(TEXTS)["log_prob"]
    np.testing.assert_allclose(outputs["token_log_probs"].sum(axis=1), scores, atol=1e-3)


def test_each_text_has_its_own_hypothesis(text_case):
    known = text_case.ask(TEXTS, "nbest")
    outputs = asked(text_case, TEXTS, 2, 0, -1)
    chosen = [0, 1, 2], [2, 0, known["texts"].shape[1] - 1]
    assert outputs["text"].tolist() == known["texts"][chosen].tolist()
    np.testing.assert_allclose(outputs["token_log_probs"].sum(axis=1), known["log_probs"][chosen], atol=1e-3)


def test_one_hypothesis_for_all(text_case):
    known = text_case.ask(TEXTS, "nbest")
    for numbers in ([1], [1, 1, 1]):
        outputs = asked(text_case, TEXTS, *numbers)
        assert outputs["text"].tolist() == known["texts"][:, 1].tolist()
    assert asked(text_case, [], 1)["text"].shape == (0,)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([99], "`hypothesis` must be less than"),
        ([0, 1], "`hypothesis` must be one, or one for each of] [3] [texts; received] [2"),
        ([[0, 1]] * 3, "`hypothesis` must be one number for a text; received] [2"),
        ([ALL], "`hypothesis` must be a number for each text, and not all"),
    ],
)
def test_hypotheses_that_are_not_there(text_case, numbers, message):
    with pytest.raises(RequestError, match=re.escape(message)):
        asked(text_case, TEXTS, *numbers)


def test_how_many_layers_and_heads_there_are(text_case):
    outputs = text_case.ask(TEXTS, "attention_all", layer=np.array([0], np.int32))
    everything = text_case.ask(TEXTS, "attention_all")
    for kind in ("encoder", "cross", "decoder"):
        assert outputs[f"{kind}_size"].tolist() == [list(everything[kind].shape[1:3])] * len(TEXTS)


def test_symbols_of_a_text(lines_run, lines_export):
    texts = ["abcd", "", "abcdefgh" * 9]
    outputs = Case(lines_run, lines_export).ask(texts, "attention_all")
    for row, predictions in enumerate(lines_run.predictions(texts)):
        count = len(predictions)
        assert strings(outputs["target_tokens"][row][:count]) == [prediction.token for prediction in predictions]
        expected = [prediction.log_prob for prediction in predictions]
        np.testing.assert_allclose(outputs["token_log_probs"][row][:count], expected, atol=1e-4)
        assert not outputs["token_log_probs"][row][count:].any()
    assert strings(outputs["tokens"][0][1:5]) == strings(outputs["target_tokens"][0][:4]) == list("abcd")
    assert strings(outputs["target_tokens"][0][4:5]) == ["</s>"]
