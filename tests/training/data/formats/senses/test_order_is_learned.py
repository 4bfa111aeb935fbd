"""With the recipe, models with positions of any kind learn the twins of `senses`, and without positions none does."""

import pytest

from training.evaluation import evaluate
from training.loop.resolve import Run, resolve
from training.loop.trainer import train
from zoo.models.shared.transformer_options import POSITIONS
from zoo.workdir import WorkDir

LEARNED = {"self_attention_classifier": POSITIONS, "transformer_classifier": ("sinusoidal", "none")}


@pytest.mark.slow
@pytest.mark.parametrize(("model", "positions"), [(model, kind) for model, kinds in LEARNED.items() for kind in kinds])
def test_twins(model, positions, tmp_path):
    settings = (f"model.positions={positions}", "training.precision=float32")
    train(WorkDir(tmp_path), Run(resolve(model, "senses:twins", settings)))
    accuracy = evaluate(tmp_path)["accuracy"]
    assert 0.45 < accuracy < 0.55 if positions == "none" else accuracy >= 0.99
