"""Exports in which a smaller model drafts tokens: their answers are those of the larger one."""

import json

import pytest
import tensorflow as tf
from support.tiny_runs import LANGUAGE_MODEL, TRANSFORMER

import zoo
from export.saved_model import export_saved_model

SMALLER = ["model.model_dim=12", "training.max_steps=30", "training.seed=5"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "kind, model, settings",
    [
        ("text", "transformer_tiny", [*TRANSFORMER, *SMALLER]),
        ("lines", "causal_lm_tiny", [*LANGUAGE_MODEL, "data.tokenizer=chars", *SMALLER]),
    ],
)
def test_an_export_with_a_draft_model(kind, model, settings, trained, request, tmp_path):
    workdir = request.getfixturevalue(f"{kind}_workdir")
    draft = trained(f"{kind}_draft", model, request.getfixturevalue(f"{kind}_spec"), *settings)
    path = export_saved_model(workdir, tmp_path, check=True, draft=draft)
    record = json.loads((path / "assets.extra" / "attention_zoo.json").read_text())
    assert record["options"]["draft_length"] == 4
    assert record["draft"] == {"name": f"{kind}_draft", "model": zoo.load(draft).config["model"]}
    assert f"drafted by {kind}_draft" in (path / "assets.extra" / "MODEL_CARD.md").read_text()
    shapes = tf.train.load_checkpoint(str(path / "variables" / "variables")).get_variable_to_shape_map().values()
    assert {16 if kind == "text" else 24, 12} <= {size for shape in shapes for size in shape}
