"""Exported language models answer as Python does."""

import re

import grpc
import numpy as np
import pytest
from support.exports import Case, RequestError

from export.client.seeds import row_seeds
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


def sampling(seed, temperature, top_p):
    """Returns the inputs of `sample` but for the texts: numbers, or one for each text."""
    return {"seed": np.int32(seed), "temperature": np.float32(temperature), "top_p": np.float32(top_p)}


SEEDS = [7, 7, -1, (1 << 31) - 1, -(1 << 31), 0]
TEMPERATURES = [0.0, 1e-38, 0.5, 1.0, 30.0, 3e38]
TOP_PS = [1.0, 0.5, 1e-30, 0.9, 1.0, 1.0]


def test_each_text_has_its_own_seed_temperature_and_top_p(language_model):
    texts = language_model.ask(PROMPTS, "sample", **sampling(SEEDS, TEMPERATURES, TOP_PS))["text"].tolist()
    alone = [
        language_model.ask([prompt], "sample", **sampling(*numbers))["text"][0]
        for prompt, *numbers in zip(PROMPTS, SEEDS, TEMPERATURES, TOP_PS, strict=True)
    ]
    assert texts == alone and len(set(texts)) > 3
    turned = [values[::-1] for values in (SEEDS, TEMPERATURES, TOP_PS)]
    assert language_model.ask(PROMPTS[::-1], "sample", **sampling(*turned))["text"].tolist() == alone[::-1]
    mixed = language_model.ask(PROMPTS, "sample", **sampling(SEEDS, 1.0, TOP_PS))["text"].tolist()
    assert mixed == language_model.ask(PROMPTS, "sample", **sampling(SEEDS, [1.0] * 6, TOP_PS))["text"].tolist()


def test_equal_texts_of_one_seed_differ(language_model):
    texts = language_model.ask(["ab"] * 20, "sample", **sampling(3, 5.0, 1.0))["text"]
    assert len(set(texts)) > 10
    again = language_model.ask(["ab"] * 20, "sample", **sampling(row_seeds(3, range(20)), [5.0] * 20, [1.0] * 20))
    assert again["text"].tolist() == texts.tolist()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("temperature", value, "must be a finite number of 0 or more. Received") for value in (np.nan, np.inf, -0.5)]
    + [("top_p", value, "must be in (0, 1]. Received") for value in (np.nan, np.inf, -0.5, 0.0, 1.5)],
)
@pytest.mark.parametrize("scalar", [True, False])
def test_numbers_out_of_range(language_model, name, value, message, scalar):
    numbers = sampling(3, 0.7, 0.9) if scalar else sampling([3, 3], [0.7, 0.7], [0.9, 0.9])
    numbers[name] = np.float32(value) if scalar else np.float32([0.5, value])
    with pytest.raises(RequestError, match=re.escape(f"`{name}` {message}")) as caught:
        language_model.ask(PROMPTS[:2], "sample", **numbers)
    assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT and f"{np.float32(value):g}" in str(caught.value)


@pytest.mark.parametrize("counts", [(1, 2, 2), (2, 1, 2), (2, 2, 3), (0, 2, 2)])
def test_as_many_numbers_as_texts(language_model, counts):
    numbers = {
        name: np.repeat(value, count) for (name, value), count in zip(sampling(1, 1, 1).items(), counts, strict=True)
    }
    received = " ".join(map(str, (2, *counts)))
    message = f"text and seed and temperature and top_p must have equal numbers of texts. Received:] [{received}]"
    with pytest.raises(RequestError, match=re.escape(message)):
        language_model.ask(PROMPTS[:2], "sample", **numbers)


def test_no_texts_to_sample(language_model):
    for numbers in (sampling(1, 1, 1), sampling([], [], [])):
        assert language_model.ask([], "sample", **numbers)["text"].tolist() == []


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
