"""With the recipe, models with positions learn the twins of `senses`, and without positions none does."""

import pytest

from training.config.resolve import TrainingRun, resolve
from training.evaluation.evaluate import evaluate
from training.loop.trainer import train
from zoo.workdir import WorkDir


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("model", "positions"), [("self_attention_classifier", "sinusoidal"), ("transformer_classifier", "none")]
)
def test_twins(model, positions, tmp_path):
    settings = (f"model.positions={positions}", "training.precision=float32")
    validated = train(WorkDir(tmp_path), TrainingRun(resolve(model, "senses:twins", settings)))["accuracy"]
    tested = evaluate(tmp_path)["accuracy"]
    assert 0.45 < tested < 0.55 if positions == "none" else min(validated, tested) >= 0.99
