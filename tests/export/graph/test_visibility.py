"""Exported Transformers of which positions see some others only: they answer as Python does."""

import numpy as np
import pytest
from support.exports import Case
from support.tiny_runs import LANGUAGE_MODEL, TRANSFORMER

import zoo

pytestmark = pytest.mark.nightly
TEXTS = ["a red horse sleeps and my girl runs .", "the book burns", "x", "", "😀 … ß"]
PROMPTS = ["abc", "", "bcdefghabcdefgh", "😀"]
BRIEFLY = ["training.max_steps=6", "training.eval_every=6", "training.average_checkpoints=1"]
TRANSLATORS = {
    "dilated, global": ["visibility=dilated", "dilation=2", "window=1", "decoder_visibility=global", "global_tokens=2"],
    "top blocks": ["visibility=top_blocks", "block_size=2", "num_blocks=1"],
}
LANGUAGE_MODELS = {
    "sinks": ["visibility=global", "window=2", "global_tokens=1"],
    "sparse blocks": ["visibility=block_sparse", "block_size=2", "summary_tokens=1"],
}


@pytest.fixture
def made(trained, exported):
    """Returns a function that returns a model that was trained for a few steps, and its export."""

    def make(model, spec, settings, options):
        settings = [*settings, *BRIEFLY, *(f"model.{option}" for option in options)]
        workdir = trained(f"{model} {' '.join(options)}", model, spec, *settings)
        return Case(zoo.load(workdir), exported(workdir))

    return make


@pytest.mark.parametrize("kind", TRANSLATORS)
def test_translators(kind, text_spec, made):
    case = made("transformer_tiny", text_spec, TRANSFORMER, TRANSLATORS[kind])
    assert case.translate(TEXTS) == case.run.translate(TEXTS)
    outputs = case.ask(TEXTS, "embed")["embeddings"]
    for row, (tokens, vectors) in enumerate(case.run.embed(TEXTS)):
        np.testing.assert_allclose(outputs[row, : len(tokens)], vectors, atol=1e-5)
    together = case.ask(TEXTS)["log_prob"]
    np.testing.assert_allclose([case.ask([text])["log_prob"][0] for text in TEXTS], together, atol=1e-5)


@pytest.mark.parametrize("kind", LANGUAGE_MODELS)
def test_language_models(kind, lines_spec, made):
    settings = [*LANGUAGE_MODEL, "data.tokenizer=chars"]
    case = made("causal_lm_tiny", lines_spec, settings, LANGUAGE_MODELS[kind])
    outputs = case.ask(PROMPTS)
    assert [text.decode() for text in outputs["text"]] == case.run.generate(PROMPTS)
    np.testing.assert_allclose(
        [case.ask([prompt])["log_prob"][0] for prompt in PROMPTS], outputs["log_prob"], rtol=1e-4, atol=1e-4
    )
