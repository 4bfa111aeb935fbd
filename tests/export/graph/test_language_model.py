"""Exported language models answer as Python does."""

import numpy as np
import pytest
from support.exports import Case

from zoo.vocabulary import PAD, START

PROMPTS = ["abc", "", "h", "bcdefgha", "z😀", "abcdefghabcdefgh"]


@pytest.fixture(scope="module")
def language_model(lines_run, lines_export):
    return Case(lines_run, lines_export)


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


def test_long_texts_and_no_texts(language_model):
    long = "abcdefgh" * 9
    assert language_model.translate([long]) == language_model.run.generate([long])
    for signature in ("serving_default", "score"):
        assert {len(values) for values in language_model.ask([], signature).values()} == {0}
