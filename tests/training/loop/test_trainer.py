"""The weights that are kept of a run."""

import keras
import numpy as np
import pytest

from training.config.options import TrainingConfig
from training.data.batching import WindowBatches
from training.loop.checkpoints import CheckpointWriter
from training.loop.state import RunState
from training.loop.trainer import set_final_weights
from zoo.workdir import WorkDir


@pytest.mark.parametrize(("measure", "kept"), [(lambda w: abs(w - 5.5), 5.5), (lambda w: abs(w - 2.0), 2.0)])
def test_the_mean_of_the_last_checkpoints_is_kept_or_the_best_where_it_is_better(tmp_path, measure, kept):
    """Of rounds of 10 steps, with the weights 2, 3, 4 and 7; the checkpoint within a round does not count."""
    workdir = WorkDir(tmp_path)
    model = keras.Sequential([keras.layers.Dense(1, use_bias=False)])
    model.build((None, 1))
    model.compile(keras.optimizers.SGD(0.5), loss="mse")

    def weight():
        return float(np.array(model.weights[0])[0, 0])

    values = {10: 2.0, 20: 3.0, 30: 4.0, 40: 7.0, 43: 99.0}
    for step, value in values.items():
        model.set_weights([np.full((1, 1), value)])
        CheckpointWriter(workdir).save(step, model, {})
    model.evaluate = lambda *arguments, **options: {"cross_entropy": measure(weight()), "loss": 0.25}
    best = min(values, key=lambda step: measure(values[step]))
    state = RunState(rounds=4, best=measure(values[best]), best_round=best // 10)
    settings = TrainingConfig(eval_every=10, average_checkpoints=2)
    found = set_final_weights(workdir, settings, model, WindowBatches(np.arange(4, 30), 5, 10), state)
    assert (weight(), found) == (kept, {"cross_entropy": measure(kept), "loss": 0.25})
