"""Exported language models answer as Python does."""

import numpy as np
import pytest
from support.exports import refused, texts_of

from export.client.seeds import row_seeds
from zoo.vocabulary import PAD, START

PROMPTS = ["abc", "", "h", "bcdefgha", "z😀", "abcdefghabcdefgh"]
SEEDS = [7, 7, -1, (1 << 31) - 1, -(1 << 31), 0]
TEMPERATURES = [0.0, 1e-38, 0.5, 1.0, 30.0, 3e38]
TOP_PS = [1.0, 0.5, 1e-30, 0.9, 1.0, 1.0]
OUT_OF_RANGE = [("temperature", value) for value in (np.nan, np.inf, -0.5)]
OUT_OF_RANGE += [("top_p", value) for value in (np.nan, np.inf, -0.5, 0.0, 1.5)]


def sampling(seed, temperature, top_p):
    """Returns the inputs of `sample` but for the texts: numbers, or one for each text."""
    return {"seed": np.int32(seed), "temperature": np.float32(temperature), "top_p": np.float32(top_p)}


@pytest.fixture(scope="module")
def sample(lines_case):
    """Returns a function that draws a continuation of each prompt."""
    return lambda prompts, *numbers: texts_of(lines_case.ask(prompts, "sample", **sampling(*numbers))["text"])


def test_continuations(lines_case):
    """Of prompts that leave no room for an answer, too, of which the end is read."""
    prompts = [*PROMPTS, "abcdefgh" * 9]
    outputs, expected = lines_case.ask(prompts), lines_case.run.continuations(prompts)
    assert texts_of(outputs["text"]) == [each.text for each in expected] == lines_case.run.generate(prompts)
    np.testing.assert_allclose(outputs["log_prob"], [each.log_prob for each in expected], rtol=1e-4, atol=1e-6)
    assert {len(values) for values in lines_case.ask([]).values()} == {0}


def test_samples(lines_case, sample):
    """With numbers for all texts they are Python's; with numbers for each text it draws as it would alone."""
    for temperature, top_p in ((1.7, 0.9), (0.0, 1.0)):
        expected = lines_case.run.generate(PROMPTS, temperature=temperature, top_p=top_p, seed=3)
        assert sample(PROMPTS, 3, temperature, top_p) == expected
    texts = sample(PROMPTS, SEEDS, TEMPERATURES, TOP_PS)
    rows = zip(PROMPTS, SEEDS, TEMPERATURES, TOP_PS, strict=True)
    assert texts == [sample([prompt], *numbers)[0] for prompt, *numbers in rows] and len(set(texts)) > 3
    turned = [values[::-1] for values in (PROMPTS, SEEDS, TEMPERATURES, TOP_PS)]
    assert sample(*turned) == texts[::-1]
    assert sample(PROMPTS, SEEDS, 1.0, TOP_PS) == sample(PROMPTS, SEEDS, [1.0] * 6, TOP_PS)
    equal = sample(["ab"] * 20, 3, 5.0, 1.0)
    assert len(set(equal)) > 10, "equal texts of one seed differ"
    assert sample(["ab"] * 20, row_seeds(3, range(20)), [5.0] * 20, [1.0] * 20) == equal
    assert sample([], 1, 1, 1) == sample([], [], [], []) == []


def test_draws_that_cannot_be(sample):
    """Numbers out of range, for all texts or for one, and not as many numbers as texts."""
    for name, value in OUT_OF_RANGE:
        for numbers in (sampling(3, 0.7, 0.9), sampling([3, 3], [0.7, 0.7], [0.9, 0.9])):
            bad = np.float32(value) if np.ndim(numbers[name]) == 0 else np.float32([0.5, value])
            asked = {**numbers, name: bad}.values()
            refused(sample, PROMPTS[:2], *asked, naming=[f"`{name}`", f"{np.float32(value):g}"])
    for counts in ((1, 2, 2), (2, 1, 2), (2, 2, 3), (0, 2, 2)):
        asked = (np.repeat(1, count) for count in counts)
        refused(sample, PROMPTS[:2], *asked, naming=["seed", "top_p", " ".join(map(str, (2, *counts)))])


def test_scores(lines_case):
    outputs, run = lines_case.ask(PROMPTS, "score"), lines_case.run
    assert outputs["num_tokens"].tolist() == [3, 0, 1, 8, 2, 13], "as many as the model can hold"
    for text, log_prob in zip(PROMPTS, outputs["log_prob"], strict=True):
        ids = run.tokenizers.text.encode([text])[0][: run.model.max_length]
        logits = np.array(run.model({"tokens": np.array([[START, *ids]], "int32")[:, : run.model.max_length]}))[0]
        logits[:, [PAD, START]] = -np.inf
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        np.testing.assert_allclose(log_prob, sum(log_probs[range(len(ids)), ids]), rtol=1e-4, atol=1e-6)
    assert {len(values) for values in lines_case.ask([], "score").values()} == {0}
