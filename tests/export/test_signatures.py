"""Exported classifiers and language models, loaded the way the stock server loads them, answer as Python does."""

import numpy as np
import pytest
import tensorflow as tf
from support.tiny_runs import run_quietly

from export import saved_model
from export.server.models.saved_model import LoadedModel
from zoo.inference import MAX_TEXT_LENGTH
from zoo.vocabulary import PAD, START

LABELLED = ["the horse sees girl", "", "girl sees horse", "old old book sees a child " * 7, "😀 unknown", "house"]
PROMPTS = ["abc", "", "h", "bcdefgha", "z😀", "abcdefghabcdefgh"]


class Case:
    """An export and the run that it came from."""

    def __init__(self, run, base):
        self.run, self.model = run, LoadedModel(base / "1", 1)

    def ask(self, texts, signature="serving_default", **scalars):
        text = np.array([text.encode() if isinstance(text, str) else text for text in texts], dtype=object)
        return self.model.predict(signature, {"text": text, **scalars})


@pytest.fixture(scope="module")
def classifier(labelled_run, labelled_export):
    return Case(labelled_run, labelled_export)


@pytest.fixture(scope="module")
def language_model(lines_run, lines_export):
    return Case(lines_run, lines_export)


def test_labels(classifier):
    outputs = classifier.ask(LABELLED)
    answers = classifier.run.classify(LABELLED)
    assert [label.decode() for label in outputs["label"]] == [answer.label for answer in answers]
    np.testing.assert_allclose(outputs["probabilities"], [answer.probabilities for answer in answers], atol=1e-6)
    assert outputs["probabilities"].dtype == np.float32
    assert [[name.decode() for name in row] for row in outputs["classes"]] == [classifier.run.classes] * len(LABELLED)


def test_the_classify_api_answers_examples(classifier):
    signature = classifier.model.signatures["classify"]
    assert signature.method_name == "tensorflow/serving/classify"
    assert set(signature.inputs) == {"inputs"} and set(signature.outputs) == {"classes", "scores"}
    examples = []
    for text in LABELLED:
        example = tf.train.Example()
        example.features.feature["text"].bytes_list.value.append(text.encode())
        examples.append(example.SerializeToString())
    outputs = classifier.model.predict("classify", {"inputs": np.array(examples, object)})
    expected = classifier.ask(LABELLED)
    np.testing.assert_array_equal(outputs["classes"], expected["classes"])
    np.testing.assert_allclose(outputs["scores"], expected["probabilities"], atol=1e-6)


def test_vectors_and_attention(classifier):
    embedded, attended = classifier.ask(LABELLED, "embed"), classifier.ask(LABELLED, "attention")
    pairs = zip(classifier.run.embed(LABELLED), classifier.run.attention(LABELLED), strict=True)
    for row, ((tokens, vectors), (_, weights)) in enumerate(pairs):
        size = len(tokens)
        for outputs in (embedded, attended):
            assert [token.decode() for token in outputs["tokens"][row]][:size] == tokens
            assert not b"".join(outputs["tokens"][row][size:])
        np.testing.assert_allclose(embedded["embeddings"][row, :size], vectors, atol=1e-5)
        np.testing.assert_allclose(attended["attention"][row, :, :, :size, :size], weights, atol=1e-6)
        assert not embedded["embeddings"][row, size:].any()
        assert not attended["attention"][row, :, :, size:].any() and not attended["attention"][row, ..., size:].any()


def test_continuations(language_model):
    outputs = language_model.ask(PROMPTS)
    assert [text.decode() for text in outputs["text"]] == language_model.run.generate(PROMPTS)
    assert (outputs["log_prob"] <= 0).all() and np.isfinite(outputs["log_prob"]).all()


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (1.7, 0.9), (0.0, 1.0)])
def test_samples(language_model, temperature, top_p):
    scalars = {"seed": np.int32(3), "temperature": np.float32(temperature), "top_p": np.float32(top_p)}
    outputs = language_model.ask(PROMPTS, "sample", **scalars)
    expected = language_model.run.generate(PROMPTS, temperature=temperature, top_p=top_p, seed=3)
    assert [text.decode() for text in outputs["text"]] == expected


@pytest.mark.parametrize("scalars", [(1.0, 0.0), (1.0, -1.0), (1.0, np.nan), (-1.0, 1.0), (np.nan, 1.0)])
def test_scalars_out_of_range_take_the_most_probable_symbol(language_model, scalars):
    temperature, top_p = map(np.float32, scalars)
    outputs = language_model.ask(PROMPTS, "sample", seed=np.int32(3), temperature=temperature, top_p=top_p)
    assert outputs["text"].tolist() == language_model.ask(PROMPTS)["text"].tolist()


def test_scores(language_model):
    outputs = language_model.ask(PROMPTS, "score")
    assert outputs["num_tokens"].tolist() == [3, 0, 1, 8, 2, 13], "as many as the model can hold"
    run = language_model.run
    for text, log_prob in zip(PROMPTS, outputs["log_prob"], strict=True):
        ids = run.tokenizers.text.encode([text])[0][: run.model.max_length]
        logits = np.array(run.model({"tokens": np.array([[START, *ids]], "int32")[:, : run.model.max_length]}))[0]
        logits[:, [PAD, START]] = -np.inf
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        np.testing.assert_allclose(log_prob, sum(log_probs[range(len(ids)), ids]), rtol=1e-4, atol=1e-6)


def test_long_texts_and_no_texts(classifier, language_model):
    assert classifier.ask(["horse " * 2000], "embed")["tokens"].shape == (1, MAX_TEXT_LENGTH)
    long = "abcdefgh" * 9
    assert language_model.ask([long])["text"][0].decode() == language_model.run.generate([long])[0]
    for case, signatures in (
        (classifier, ("serving_default", "embed")),
        (language_model, ("serving_default", "score")),
    ):
        for signature in signatures:
            assert {len(values) for values in case.ask([], signature).values()} == {0}


def test_options_of_other_tasks_are_refused(labelled_workdir, tmp_path, capsys):
    status = run_quietly(saved_model.main, labelled_workdir, "--output", tmp_path / "x", "--beam_size", "2")
    assert status == 2
    assert "--beam_size is not for classifier models such as self_attention_classifier." in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
