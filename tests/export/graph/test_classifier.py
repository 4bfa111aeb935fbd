"""Exported classifiers answer as Python does."""

import numpy as np
import pytest
import tensorflow as tf
from support.exports import Case

from zoo.inference import MAX_TEXT_LENGTH

TEXTS = ["the horse sees girl", "", "girl sees horse", "old old book sees a child " * 7, "😀 unknown", "house"]


@pytest.fixture(scope="module")
def classifier(labelled_run, labelled_export):
    return Case(labelled_run, labelled_export)


def test_labels(classifier):
    outputs = classifier.ask(TEXTS)
    answers = classifier.run.classify(TEXTS)
    assert [label.decode() for label in outputs["label"]] == [answer.label for answer in answers]
    np.testing.assert_allclose(outputs["probabilities"], [answer.probabilities for answer in answers], atol=1e-6)
    assert outputs["probabilities"].dtype == np.float32
    assert [[name.decode() for name in row] for row in outputs["classes"]] == [classifier.run.classes] * len(TEXTS)


def test_the_classify_api_answers_examples(classifier):
    signature = classifier.model.signatures["classify"]
    assert signature.method_name == "tensorflow/serving/classify"
    assert set(signature.inputs) == {"inputs"} and set(signature.outputs) == {"classes", "scores"}
    examples = []
    for text in TEXTS:
        example = tf.train.Example()
        example.features.feature["text"].bytes_list.value.append(text.encode())
        examples.append(example.SerializeToString())
    outputs = classifier.model.predict("classify", {"inputs": np.array(examples, object)})
    expected = classifier.ask(TEXTS)
    np.testing.assert_array_equal(outputs["classes"], expected["classes"])
    np.testing.assert_allclose(outputs["scores"], expected["probabilities"], atol=1e-6)


def test_vectors_and_attention(classifier):
    embedded, attended = classifier.ask(TEXTS, "embed"), classifier.ask(TEXTS, "attention")
    pairs = zip(classifier.run.embed(TEXTS), classifier.run.attention(TEXTS), strict=True)
    for row, ((tokens, vectors), (_, weights)) in enumerate(pairs):
        size = len(tokens)
        for outputs in (embedded, attended):
            assert [token.decode() for token in outputs["tokens"][row]][:size] == tokens
            assert not b"".join(outputs["tokens"][row][size:])
        np.testing.assert_allclose(embedded["embeddings"][row, :size], vectors, atol=1e-5)
        np.testing.assert_allclose(attended["attention"][row, :, :, :size, :size], weights, atol=1e-6)
        assert not embedded["embeddings"][row, size:].any()
        assert not attended["attention"][row, :, :, size:].any() and not attended["attention"][row, ..., size:].any()


def test_long_texts_and_no_texts(classifier):
    assert classifier.ask(["horse " * 2000], "embed")["tokens"].shape == (1, MAX_TEXT_LENGTH)
    for signature in ("serving_default", "embed"):
        assert {len(values) for values in classifier.ask([], signature).values()} == {0}
