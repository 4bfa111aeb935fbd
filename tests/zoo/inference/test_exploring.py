"""`run.explore`: what views say is what the other methods of a run say."""

import math

import numpy as np
import pytest

from zoo.errors import InputError


def total(answer, first=0):
    return sum(answer.log_probs[first:])


def test_translations(text_run):
    texts = ["the horse sees", "a girl 😀"]
    page = text_run.explore(texts, beam_size=2)
    for text, view in zip(texts, page.views, strict=True):
        hypotheses = text_run.nbest([text], beam_size=2)[0]
        assert (view.task, view.model, view.text, view.notes) == ("seq2seq", "transformer_tiny", text, [])
        ((tokens, weights),) = text_run.attention([text], kind="encoder")
        assert view.tokens == tokens
        np.testing.assert_allclose(view.attention["encoder"].layers, weights, atol=1e-6)
        assert [answer.text for answer in view.answers] == [hypothesis.text for hypothesis in hypotheses]
        for number, (answer, hypothesis) in enumerate(zip(view.answers, hypotheses, strict=True)):
            assert answer.hypothesis == number and answer.tokens[:-1] == answer.before[1:]
            np.testing.assert_allclose(total(answer), hypothesis.log_prob, atol=1e-3)
            np.testing.assert_allclose(total(answer), answer.log_prob, atol=1e-3)
            assert answer.attention["decoder"].shape[1:] == (len(answer.tokens),) * 2

        source, target, cross = text_run.align(text, hypothesis)
        assert (source, target) == (view.tokens, answer.tokens)
        np.testing.assert_allclose(answer.attention["cross"].layers, cross, atol=1e-6)


def test_a_classifier(labelled_run):
    (view,) = labelled_run.explore(["the horse sees a girl"]).views
    (answer,) = labelled_run.classify(["the horse sees a girl"])
    assert view.task == "classifier" and view.classes[0][0] == answer.label and not view.answers
    assert dict(view.classes) == dict(zip(labelled_run.classes, map(float, answer.probabilities), strict=True))
    ((tokens, weights),) = labelled_run.attention(["the horse sees a girl"])
    assert view.tokens == tokens
    np.testing.assert_allclose(view.attention["encoder"].layers, weights, atol=1e-6)


def test_a_language_model(lines_run):
    (view,) = lines_run.explore(["abc"]).views
    (continuation,) = lines_run.continuations(["abc"])
    (answer,) = view.answers
    assert (view.task, answer.text, answer.given) == ("language_model", continuation.text, 3)
    token_ids = [*"abc", *answer.text]
    assert answer.tokens == [*token_ids, "</s>"][: lines_run.model.max_length]
    assert answer.before == ["<s>", *token_ids][: lines_run.model.max_length]
    assert answer.attention["decoder"].shape[1:] == (len(answer.tokens), len(answer.tokens))
    for token, log_prob, alternatives in zip(
        answer.tokens[3:], answer.log_probs[3:], answer.alternatives[3:], strict=True
    ):
        values = [value for _, value in alternatives]
        assert len(values) == 5 and values == sorted(values, reverse=True)
        assert alternatives[0] == (token, pytest.approx(log_prob, abs=1e-4)), "greedy search takes the best"
        assert sum(map(math.exp, values)) <= 1 + 1e-5
    (score,) = lines_run.score(["abc" + answer.text])
    np.testing.assert_allclose(sum(answer.log_probs[: len(token_ids)]), score.log_prob, atol=1e-3)
    assert total(answer, 3) == pytest.approx(answer.log_prob, abs=1e-3)


def test_tokens_without_a_text(lines_run, labelled_run, text_run):
    for run, options in ((lines_run, {}), (labelled_run, {}), (text_run, {"beam_size": 2})):
        (view,) = run.explore([""], **options).views
        assert not view.notes and (view.tokens or view.answers[0].tokens)


def test_texts_that_are_cut(labelled_run, lines_run):
    (view,) = labelled_run.explore(["a " * 700]).views
    assert len(view.tokens) == 512
    assert len(view.notes) == 1 and "511" in view.notes[0]
    (view,) = labelled_run.explore(["a " * 511]).views
    assert len(view.tokens) == 512 and not view.notes
    (view,) = lines_run.explore(["abcdefgh" * 9]).views
    assert view.notes and len(view.answers[0].before) == lines_run.model.max_length


def test_wrong_arguments(text_run, labelled_run):
    with pytest.raises(InputError, match="`texts`.*'a horse'"):
        text_run.explore("a horse")
    with pytest.raises(InputError, match="none"):
        labelled_run.explore([])
    with pytest.raises(InputError, match="beam_size=0"):
        text_run.explore(["a"], beam_size=0)
    with pytest.raises(InputError, match="`hypotheses`.*2.*1"):
        text_run.predictions(["a", "b"], text_run.nbest(["a"], 2)[0][:1])


@pytest.mark.nightly
def test_a_model_that_does_not_attend(trained, text_spec):
    import zoo

    settings = "training.max_steps=2 training.eval_every=2 model.units=8 model.embedding_dim=8 data.vocab_size=120"
    workdir = trained("rnn_encdec", "rnn_encdec", text_spec, *settings.split())
    (view,) = zoo.load(workdir).explore(["a horse"], beam_size=2).views
    assert not view.attention and not view.answers[0].attention and view.answers[0].tokens
