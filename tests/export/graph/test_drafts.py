"""Exports in which a smaller model drafts tokens: their answers are those of the larger one."""

import json

import pytest
import tensorflow as tf
from support.tiny_runs import LANGUAGE_MODEL, TRANSFORMER, run_quietly

import zoo
from export import saved_model
from export.check.drafts import confirmed_drafts
from export.options import LanguageModelExportOptions

SMALLER = ["model.model_dim=12", "training.max_steps=30", "training.seed=5"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "kind, model, settings",
    [
        ("text", "transformer_tiny", [*TRANSFORMER, *SMALLER]),
        ("lines", "causal_lm_tiny", [*LANGUAGE_MODEL, "data.tokenizer=chars", *SMALLER]),
    ],
)
def test_an_export_with_a_draft_model(kind, model, settings, trained, request, tmp_path, capsys):
    workdir = request.getfixturevalue(f"{kind}_workdir")
    draft = trained(f"{kind}_draft", model, request.getfixturevalue(f"{kind}_spec"), *settings)
    text = tmp_path / "val.txt"
    text.write_text("the old man\n\na horse\n")
    flags = ("--check", "--draft", draft, "--draft_text", text)
    assert run_quietly(saved_model.main, workdir, "--output", tmp_path / "exported", *flags) == 0
    assert "drafts of 4 tokens: " in (error := capsys.readouterr().err) and "(2 lines of val.txt)" in error
    path = tmp_path / "exported" / "1"
    record = json.loads((path / "assets.extra" / "attention_zoo.json").read_text())
    assert record["options"]["draft_length"] == 4
    assert record["draft"] == {"name": f"{kind}_draft", "model": zoo.load(draft).config["model"]}
    assert f"drafted by {kind}_draft" in (path / "assets.extra" / "MODEL_CARD.md").read_text()
    shapes = tf.train.load_checkpoint(str(path / "variables" / "variables")).get_variable_to_shape_map().values()
    assert {16 if kind == "text" else 24, 12} <= {size for shape in shapes for size in shape}


@pytest.mark.nightly
def test_drafts_of_the_model_itself_are_confirmed(lines_run, tmp_path):
    prompts = ["abc", "h", "bcdefgha"]
    text = tmp_path / "val.txt"
    text.write_text("\n\n".join(prompts))
    num_tokens, num_calls = 0, 0
    for prompt, answer in zip(prompts, lines_run.continuations(prompts), strict=True):
        # The tokens are characters; the last one is the end, if there is room for it.
        size = min(len(answer.text) + 1, lines_run.model.max_length - len(prompt))
        num_tokens, num_calls = num_tokens + size, num_calls + -(-size // 4)
    line = confirmed_drafts(lines_run.with_draft(lines_run), LanguageModelExportOptions(draft_length=3), text)
    assert f": {num_tokens / num_calls:.2f} tokens for each call" in line
    assert f"{(num_tokens - num_calls) / (3 * num_calls):.0%} of" in line and "(3 lines of val.txt)" in line
    assert "decode_steps" not in vars(lines_run.model), "the model counts no longer"
