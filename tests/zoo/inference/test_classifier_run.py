"""A loaded classifier: labels, vectors and attention, whatever the texts."""

import numpy as np
import pytest

from training.data import load_data
from zoo.errors import InputError
from zoo.inference import MAX_TEXT_LENGTH, ClassifierRun
from zoo.vocabulary import END

TEXTS = ["the horse sees girl", "", "girl sees horse", "old old book sees a child " * 7, "😀 unknown words", "house"]


def test_what_is_loaded(labelled_run):
    assert isinstance(labelled_run, ClassifierRun)
    assert labelled_run.classes == ["animal", "human", "thing"] == labelled_run.config["data"]["classes"]
    assert labelled_run.tokenizers.text.vocab_size == labelled_run.config["model"]["vocab_size"]


def test_it_learned_what_the_first_noun_says(labelled_run, labelled_spec):
    test = load_data(labelled_spec).split("test")
    answers = labelled_run.classify(test.texts)
    right = np.mean([answer.label == label for answer, label in zip(answers, test.labels, strict=True)])
    assert right >= 0.9, "order matters: half of the sentences turn round would be wrong"


def test_order_is_kept_and_a_batch_answers_like_each_alone(labelled_run):
    answers = labelled_run.classify(TEXTS)
    for options in ({"batch_size": 1}, {"batch_size": 4}):
        for one, other in zip(answers, labelled_run.classify(TEXTS, **options), strict=True):
            assert one.label == other.label
            np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-6)
    for answer in answers:
        assert answer.probabilities.dtype == np.float32
        np.testing.assert_allclose(answer.probabilities.sum(), 1.0, rtol=1e-5)
        assert answer.label == labelled_run.classes[answer.probabilities.argmax()]
    assert labelled_run.classify([]) == []


def test_vectors_depend_on_the_context(labelled_run):
    (tokens, vectors), (other_tokens, other_vectors) = labelled_run.embed(["horse sees girl", "horse sees book"])
    assert tokens == ["▁horse", "▁sees", "▁girl", "</s>"] and other_tokens[:2] == tokens[:2]
    assert vectors.shape == (4, 16) and vectors.dtype == np.float32
    assert np.abs(vectors[0] - other_vectors[0]).max() > 1e-4


def test_attention(labelled_run):
    for text, (tokens, weights) in zip(TEXTS, labelled_run.attention(TEXTS), strict=True):
        assert tokens == labelled_run.tokenizers.text.pieces(labelled_run.ids([text])[0])
        assert weights.shape == (1, 1, len(tokens), len(tokens))
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-5)


def test_a_long_text_is_cut(labelled_run):
    (row,) = labelled_run.ids(["horse " * 2000])
    assert len(row) == MAX_TEXT_LENGTH and row[-1] == END


def test_wrong_arguments(labelled_run):
    for method in (labelled_run.classify, labelled_run.embed, labelled_run.attention):
        with pytest.raises(InputError, match="`texts`.*'one text'"):
            method("one text")
    with pytest.raises(InputError, match="`batch_size`.*batch_size=0"):
        labelled_run.classify(TEXTS, batch_size=0)


def test_no_attention_to_ask_for(labelled_run, monkeypatch):
    monkeypatch.setattr(type(labelled_run.model), "attends", False)
    with pytest.raises(InputError, match="self_attention_classifier"):
        labelled_run.attention(TEXTS)


def test_load_is_by_task(labelled_run, lines_run, text_run):
    names = [type(run).__name__ for run in (labelled_run, lines_run, text_run)]
    assert names == ["ClassifierRun", "LanguageModelRun", "Seq2SeqRun"]
