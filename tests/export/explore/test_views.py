"""Views of served models, from scripted answers."""

import numpy as np
import pytest

from export.client import ServerError
from zoo.errors import InputError

LONG = "word " * 60


def test_a_translator(models):
    view = models["translator"].view("one two three")
    assert (view.task, view.tokens) == ("seq2seq", ["one", "two", "three", "</s>"])
    best, other = view.answers
    assert (best.text, best.log_prob, best.hypothesis) == ("three two one", -0.5, None)
    assert (best.tokens, best.before) == (["three", "two", "one", "</s>"], ["<s>", "three", "two", "one"])
    assert [pair[0] for pair in best.alternatives[0]] == ["three", "<i>other</i>"]
    assert best.log_probs == pytest.approx([-0.1] * 4)
    assert [len(best.attention[kind].layers) for kind in ("cross", "decoder")] == [2, 2]
    assert best.attention["cross"].shape == (3, 4, 4) and view.attention["encoder"].shape == (3, 4, 4)
    assert (other.text, other.hypothesis, other.tokens) == ("one two three", 1, None)


def test_another_answer(models):
    answer = models["translator"].answer("one two three", 1)
    assert (answer.text, answer.hypothesis, answer.tokens[0]) == ("one two three", 1, "one")


def test_everything_for_a_file(models):
    view = models["translator"].view(LONG, everything=True)
    assert all(answer.tokens for answer in view.answers)
    assert all(layer is not None for answer in view.answers for layer in answer.attention["cross"].layers)


def test_a_long_text_is_asked_in_parts(models, scripted):
    model = models["translator"]
    view = model.view(LONG)
    first, last = view.answers[0].attention["cross"].layers
    assert first is None and last.shape == (3, 61, 61)
    whole = model.view(LONG, everything=True).to_json()
    for layer in (0, 1):
        parts = model.layer(LONG, None, layer)
        assert parts.keys() == {"encoder", "cross", "decoder"}
        assert parts["cross"] == whole["answers"][0]["attention"]["cross"]["layers"][layer]
        assert parts["encoder"] == whole["attention"]["encoder"]["layers"][layer]
    assert "token_log_probs" not in scripted.requests[-1].output_filter


def test_a_classifier(models):
    view = models["classifier"].view("one two")
    assert view.task == "classifier" and view.classes == [("<b>odd</b>", 0.75), ("even", 0.25)]
    assert view.tokens == ["one", "two", "</s>"] and view.attention["encoder"].shape == (3, 3, 3)
    with pytest.raises(InputError, match="classifier"):
        models["classifier"].answer("one", 1)


def test_a_language_model(models):
    view = models["continuer"].view("one two")
    (answer,) = view.answers
    assert (answer.text, answer.log_prob, answer.given) == (" and so on", -1.5, 2)
    assert answer.before == ["<s>", "one", "two", "and", "so", "on"]
    assert answer.tokens == [*answer.before[1:], "</s>"]
    assert models["continuer"].layer("one two", None, 1).keys() == {"decoder"}


def test_what_a_view_says_is_json(models):
    for name in ("translator", "classifier", "continuer"):
        view = models[name].view("<img src=x onerror=alert(1)> </script>")
        assert type(view).from_json(view.to_json()).to_json() == view.to_json()


def test_texts_that_are_too_long(models):
    with pytest.raises(InputError, match="40,000.*32,768"):
        models["translator"].view("x" * 40_000)


def test_models_that_cannot_be_shown(models):
    with pytest.raises(InputError, match="deaf.*`attention_all`.*serving_default"):
        models["deaf"].view("one")
    with pytest.raises(ServerError, match="NOT_FOUND: Servable not found"):
        models["nowhere"].view("one")
    with pytest.raises(ServerError, match="localhost:9"):
        models["gone"].view("one")


def test_weights_of_padding_are_left_out(models):
    view = models["translator"].view("one two")
    for layer in view.answers[0].attention["cross"].layers:
        np.testing.assert_allclose(layer.sum(axis=-1), 1, rtol=1e-4)
