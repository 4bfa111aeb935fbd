"""What every trained run shows of itself: vectors, attention of each kind, and one word in several texts."""

import numpy as np
import pytest

from zoo.errors import InputError
from zoo.inference.comparison import words_of
from zoo.vocabulary import START


def test_vectors_of_every_task(labelled_run, text_run, lines_run):
    for run, text in ((labelled_run, "horse sees girl"), (text_run, "a horse"), (lines_run, "abc")):
        ((tokens, contextual),) = run.embed([text])
        ((same_tokens, static),) = run.embed([text], contextual=False)
        assert tokens == same_tokens == run.reader.pieces(run.ids([text])[0])
        assert len(contextual) == len(static) == len(tokens) and contextual.dtype == np.float32
        assert run.embed([]) == []


def test_static_vectors_know_no_context(labelled_run):
    (_, first), (_, second) = labelled_run.embed(["horse sees girl", "horse sees book"], contextual=False)
    np.testing.assert_array_equal(first[:2], second[:2])
    table = np.array(labelled_run.model.embedding.embeddings)
    np.testing.assert_array_equal(first, table[labelled_run.ids(["horse sees girl"])[0]])


def test_a_language_model_knows_what_comes_before(lines_run):
    (tokens, first), (_, second) = lines_run.embed(["abcd", "abce"])
    assert lines_run.ids(["abcd"])[0][0] == START and len(tokens) == 5
    np.testing.assert_allclose(first[:4], second[:4], atol=1e-6)
    assert np.abs(first[4] - second[4]).max() > 1e-3


def test_attention_of_language_models(lines_run):
    ((tokens, weights),) = lines_run.attention(["abcd"])
    assert weights.shape[-2:] == (5, 5) == (len(tokens),) * 2
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
    assert not np.triu(weights, 1).any()


@pytest.mark.nightly
def test_attention_of_each_kind_in_a_translation(text_run):
    ((source, inside),) = text_run.attention(["the horse sees"], kind="encoder")
    ((target, before),) = text_run.attention([b"the horse sees"], kind="decoder")
    ((source_too, translation, cross),) = text_run.attention(text for text in ["the horse sees"])
    assert source == source_too and target[1:] == translation[:-1]
    assert inside.shape[-2:] == (len(source),) * 2 and before.shape[-2:] == (len(target),) * 2
    assert cross.shape == (*inside.shape[:2], len(translation), len(source))
    for weights in (inside, before):
        np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
    assert not np.triu(before, 1).any() and np.triu(inside, 1).any()


def test_kinds_that_a_model_has_not(labelled_run, lines_run, text_run):
    for run, kind, known in (
        (labelled_run, "cross", "encoder"),
        (lines_run, "encoder", "decoder"),
        (text_run, "self", "encoder, cross, decoder"),
    ):
        with pytest.raises(InputError, match=f"'{kind}'.*{known}"):
            run.attention(["a"], kind=kind)


def test_words_are_found_whatever_the_tokens(labelled_run, text_run, lines_run):
    for run, text, words in (
        (labelled_run, "the horse sees a girl", ["the", "horse", "sees", "a", "girl"]),
        (text_run, "the horse sees", ["the", "horse", "sees"]),
        (lines_run, "abc", ["abc"]),
    ):
        (row,) = run.ids([text])
        spans = words_of(run.reader, row)
        assert [word for word, _ in spans] == words
        for word, span in spans:
            assert run.reader.decode([row[span]])[0].strip() == word


def test_one_word_in_several_texts(labelled_run):
    texts = ["the horse sees a girl", "horse sees girl", "The girl sees a horse"]
    comparison = labelled_run.compare("Horse", (text.encode() for text in texts), neighbours=2)
    assert list(comparison.texts) == texts
    assert comparison.cosines.shape == (3, 3)
    np.testing.assert_allclose(np.diag(comparison.cosines), 1, rtol=1e-5)
    vectors = [labelled_run.embed([text])[0] for text in texts]
    first, second = (matrix[tokens.index("▁horse")] for tokens, matrix in vectors[:2])
    expected = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    np.testing.assert_allclose(comparison.cosines[0, 1], expected, rtol=1e-4)
    for neighbours in comparison.neighbours:
        assert len(neighbours) == 2 and neighbours[0][2] >= neighbours[1][2]
        assert all(word.lower() != "horse" for word, _, _ in neighbours)
    assert str(comparison).splitlines()[0] == "cosines of the vectors of 'Horse':"


def test_words_that_are_not_there(labelled_run):
    with pytest.raises(InputError, match="'cow'.*'horse sees girl'"):
        labelled_run.compare("cow", ["horse sees girl"])
    with pytest.raises(InputError, match="`texts`.*none"):
        labelled_run.compare("horse", [])
