"""With the recipe, models with positions of any kind learn the twins of `senses`, and without positions none does."""

import pytest

from training.evaluation import evaluate
from training.loop.resolve import Run, resolve
from training.loop.trainer import train
from zoo.workdir import WorkDir

POSITIONS = ("sinusoidal", "learned", "concat", "learned_concat", "rotary", "alibi", "relative", "t5", "none")
LEARNED = {"self_attention_classifier": POSITIONS, "transformer_classifier": POSITIONS}


@pytest.mark.nightly
@pytest.mark.parametrize(("model", "positions"), [(model, kind) for model, kinds in LEARNED.items() for kind in kinds])
def test_twins(model, positions, tmp_path):
    settings = (f"model.positions={positions}", "training.precision=float32")
    validated = train(WorkDir(tmp_path), Run(resolve(model, "senses:twins", settings)))["accuracy"]
    tested = evaluate(tmp_path)["accuracy"]
    assert 0.45 < tested < 0.55 if positions == "none" else min(validated, tested) >= 0.99
