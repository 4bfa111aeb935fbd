"""What exports show of the inside of models, as Python shows it: vectors, attention, and predictions of tokens."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from support.exports import Case, refused, texts_of
from support.tiers import nightly_unless

from export.client.answers import alignments
from export.graph import seq2seq
from export.graph.attention_weights import ALL
from export.wire.tensors import as_text
from zoo.vocabulary import START

TEXTS = ["the horse sees a girl", "", "😀", "abcdefgh", "red"]
LONG = "a " * 700
TOKENS = {"encoder": ["source_tokens"], "cross": ["source_tokens", "target_tokens"], "decoder": ["decoder_tokens"]}


@pytest.fixture(params=nightly_unless("text".__ne__, ["text", "labelled", "lines"]))
def case(request) -> Case:
    return request.getfixturevalue(f"{request.param}_case")


def assert_padded(values, expected):
    """Checks that values begin with what is expected and are zero beyond."""
    inside = tuple(map(slice, np.shape(expected)))
    np.testing.assert_allclose(values[inside], expected, atol=1e-4)
    outside = values.copy()
    outside[inside] = 0
    assert not outside.any()


def assert_tokens(values, expected):
    """Checks that there are the expected tokens and padding after them."""
    assert texts_of(values) == [*expected, *[""] * (len(values) - len(expected))]


def assert_predicted(outputs, row, predictions):
    """Checks the tokens of an answer, how probable they are, and what else could stand in their places."""
    assert_tokens(outputs["target_tokens"][row], [each.token for each in predictions])
    assert_padded(outputs["token_log_probs"][row], np.array([each.log_prob for each in predictions]))
    for place, each in enumerate(predictions):
        assert texts_of(outputs["alternatives"][row][place]) == [token for token, _ in each.alternatives]
        values = [value for _, value in each.alternatives]
        np.testing.assert_allclose(outputs["alternative_log_probs"][row][place], values, atol=1e-4)


def test_vectors(case):
    texts = [*TEXTS, LONG]
    outputs = case.ask(texts, "embed")
    assert outputs["embeddings"].dtype == np.float32
    for row, (tokens, vectors) in enumerate(case.run.embed(texts)):
        assert_tokens(outputs["tokens"][row], tokens)
        assert_padded(outputs["embeddings"][row], vectors)
    assert {len(values) for values in case.ask([], "embed").values()} == {0}


def test_attention(case):
    """Of each kind, with its tokens; a long neighbour changes nothing; layers and heads by number."""
    outputs, kinds = case.ask(TEXTS, "attention_all"), case.run.model.attention_kinds
    beside_a_long_one = case.ask([LONG[:180], TEXTS[0]], "attention_all")
    assert set(kinds) == outputs.keys() & TOKENS.keys()
    for kind in kinds:
        assert outputs[kind].dtype == np.float32
        assert outputs[f"{kind}_size"].tolist() == [list(outputs[kind].shape[1:3])] * len(TEXTS)
        for row, (*tokens, weights) in enumerate(case.run.attention(TEXTS, kind=kind)):
            assert_padded(outputs[kind][row], weights)
            if row == 0:
                assert_padded(beside_a_long_one[kind][1], weights)
            for name, expected in zip(TOKENS[kind] if "cross" in kinds else ["tokens"], tokens, strict=True):
                assert_tokens(outputs[name][row], expected)
        check_numbers(case, kind, outputs[kind])
    assert {len(values) for values in case.ask([], "attention_all").values()} == {0}
    check_refused(case)


def check_numbers(case, kind, everything):
    """A number for all texts, several, or one for each text: what is asked for comes first, and then zeros."""
    _, layers, heads, *_ = everything.shape
    for layer, head in ((0, ALL), (-1, ALL), (ALL, [0]), ([-1], [[heads - 1, 0][:heads]])):
        received = case.ask(TEXTS, "attention_all", layer=np.int32(layer), head=np.int32(head))[kind]
        chosen = [
            range(count) if number is ALL else np.ravel(number) for number, count in ((layer, layers), (head, heads))
        ]
        np.testing.assert_allclose(received, everything[:, chosen[0]][:, :, chosen[1]], atol=1e-6)
    numbers = np.int32([[0, heads - 1], [-1, ALL], [ALL, 0], [0, -heads], [0, 0]])
    received = case.ask(TEXTS, "attention_all", layer=numbers[:, 0], head=numbers[:, 1])[kind]
    assert received.shape == everything.shape
    for row, (layer, head) in enumerate(numbers):
        weights = everything[row] if layer == ALL else everything[row][[layer]]
        assert_padded(received[row], weights if head == ALL else weights[:, [head]])


def check_refused(case):
    """Numbers of layers and heads that are not there, and as many as would make an answer of any size."""
    for name, numbers, words in (
        ("layer", 9, ["9"]),
        ("head", -9, ["-9"]),
        ("head", [0, 9], ["9"]),
        ("layer", [0, 0, 0], ["[2]", "[3"]),
        ("head", [], ["[2]", "[0"]),
        ("head", [[0] * 9], ["9"]),
    ):
        refused(case.ask, ["red", "a"], "attention_all", naming=[f"`{name}`", *words], **{name: np.int32(numbers)})


@pytest.mark.nightly
def test_tokens_of_the_best_translation(text_case):
    outputs, best = text_case.ask(TEXTS, "attention_all"), text_case.run.nbest(TEXTS, beam_size=1)
    assert texts_of(outputs["text"]) == [answer.text for answer, *_ in best]
    for row, predictions in enumerate(text_case.run.predictions(TEXTS, [answer for answer, *_ in best])):
        assert_predicted(outputs, row, predictions)
    np.testing.assert_allclose(outputs["token_log_probs"].sum(axis=1), text_case.ask(TEXTS)["log_prob"], atol=1e-3)


def test_another_translation_for_each_text():
    """A number for each text, or one for all, counted from the end, too."""
    ids = tf.random.uniform([3, 5, 4], 4, 99, tf.int32)
    answers = {"hypotheses": lambda source: {"ids": ids}, "inside": lambda source, chosen, layer, head: chosen}
    graph = SimpleNamespace(read=tf.strings.length, **answers)
    for numbers in ([2, 0, -1], [1], [1, 1, 1], 4, -5):
        chosen = seq2seq.attention_nbest(graph, ["a", "b", "c"], np.int32(numbers))
        np.testing.assert_array_equal(chosen, ids.numpy()[[0, 1, 2], np.broadcast_to(numbers, [3])])
    for numbers, received in (([5], "5"), ([0, 1], "2"), ([[0, 1]] * 3, "2"), ([ALL], "all")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s)`hypothesis`.*{received}"):
            seq2seq.attention_nbest(graph, ["a", "b", "c"], np.int32(numbers))


@pytest.mark.nightly
def test_tokens_of_another_translation(text_case):
    known = text_case.ask(TEXTS, "nbest")
    for numbers in ([2, 0, -1, 3, 1], [1]):
        outputs = text_case.ask(TEXTS, "attention_nbest", hypothesis=np.int32(numbers))
        chosen = np.arange(5), np.broadcast_to(numbers, [5])
        assert outputs["text"].tolist() == known["texts"][chosen].tolist()
        np.testing.assert_allclose(outputs["token_log_probs"].sum(axis=1), known["log_probs"][chosen], atol=1e-3)
    refused(text_case.ask, TEXTS, "attention_nbest", hypothesis=np.int32([99]), naming=["`hypothesis`", "99"])
    assert {len(values) for values in text_case.ask([], "attention_nbest").values()} == {0}


def test_tokens_of_a_text_that_a_language_model_reads(lines_case):
    """And its attention, as the client draws it."""
    texts = ["abcd", "", "abcdefgh" * 9]
    outputs = lines_case.ask(texts, "attention_all")
    for row, predictions in enumerate(lines_case.run.predictions(texts)):
        assert_predicted(outputs, row, predictions)
    assert texts_of(outputs["tokens"][0][1:5]) == texts_of(outputs["target_tokens"][0][:4]) == list("abcd")
    assert texts_of(outputs["target_tokens"][0][4:5]) == ["</s>"]
    outputs = lines_case.ask(["abcd"], "attention")
    (answer,) = alignments({name: as_text(values) for name, values in outputs.items()})
    ((tokens, weights),) = lines_case.run.attention(["abcd"])
    assert (
        answer.source_tokens == answer.target_tokens == tokens == lines_case.run.reader.pieces([START]) + list("abcd")
    )
    np.testing.assert_allclose(answer.attention, weights, atol=1e-5)
