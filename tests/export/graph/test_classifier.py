"""Exported classifiers answer as Python does."""

import numpy as np
import tensorflow as tf
from support.exports import texts_of

from export.server.models.loader import warm_up
from zoo.inference import MAX_TEXT_LENGTH

TEXTS = ["the horse sees girl", "", "girl sees horse", "old old book sees a child " * 7, "😀 unknown", "house"]


def test_labels(labelled_case):
    """As texts and as examples of the classify API; a server can replay what was recorded to warm it up."""
    outputs, answers = labelled_case.ask(TEXTS), labelled_case.run.classify(TEXTS)
    assert texts_of(outputs["label"]) == [answer.label for answer in answers]
    np.testing.assert_allclose(outputs["probabilities"], [answer.probabilities for answer in answers], atol=1e-6)
    assert outputs["probabilities"].dtype == np.float32
    assert texts_of(outputs["classes"]) == [labelled_case.run.classes] * len(TEXTS)
    assert {len(values) for values in labelled_case.ask([]).values()} == {0}
    examples = [tf.train.Example() for _ in TEXTS]
    for example, text in zip(examples, TEXTS, strict=True):
        example.features.feature["text"].bytes_list.value.append(text.encode())
    serialized = np.array([example.SerializeToString() for example in examples], object)
    classified = labelled_case.model.predict("classify", {"inputs": serialized})
    np.testing.assert_array_equal(classified["classes"], outputs["classes"])
    np.testing.assert_allclose(classified["scores"], outputs["probabilities"], atol=1e-6)
    warm_up(labelled_case.model, labelled_case.path)


def test_attention(labelled_case):
    """It is zero for padding; a long text is cut, and what is behind the first bytes is not even tokenized."""
    outputs = labelled_case.ask(TEXTS, "attention")
    for row, (tokens, weights) in enumerate(labelled_case.run.attention(TEXTS)):
        size, attention = len(tokens), outputs["attention"][row]
        assert texts_of(outputs["tokens"][row]) == [*tokens, *[""] * (outputs["tokens"].shape[1] - size)]
        np.testing.assert_allclose(attention[:, :, :size, :size], weights, atol=1e-6)
        assert not attention[:, :, size:].any() and not attention[..., size:].any()
    # If the text were tokenized whole, this would take minutes.
    (tokens,) = labelled_case.ask(["horse " * 2000 + " " * (1 << 26) + "a"], "embed")["tokens"]
    assert texts_of(tokens) == [*labelled_case.run.embed(["horse " * 2000])[0][0]] and len(tokens) == MAX_TEXT_LENGTH
