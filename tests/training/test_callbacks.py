"""What happens at the end of a round, and what is left for a resumed run."""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest

from training.callbacks import Checkpoints, Progress, RunState, stopped_early
from training.checkpoints import list_checkpoints, restore_checkpoint
from zoo.workdir import WorkDir


@pytest.fixture
def model():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.build((None, 2))
    model.compile(keras.optimizers.SGD(0.5), loss="mse")
    model.optimizer.build(model.trainable_variables)
    return model


def rounds(workdir, model, losses, state=None, keep=2, patience=0):
    """Ends rounds of 10 steps with these validation losses, until the callback stops."""
    state = RunState() if state is None else state
    callback = Checkpoints(workdir, state, eval_every=10, keep=keep, patience=patience)
    callback.set_model(model)
    model.stop_training = False
    callback.on_train_begin()
    for epoch, loss in enumerate(losses, start=state.rounds):
        callback.on_epoch_end(epoch, {"loss": loss, "val_cross_entropy": loss})
        if model.stop_training:
            break
    callback.on_train_end()
    return state


def steps_of(workdir):
    return [int(path.stem.removeprefix("step_")) for path in list_checkpoints(workdir.checkpoints)]


def test_a_round_leaves_a_log_line_and_a_checkpoint(tmp_path, model):
    workdir = WorkDir(tmp_path)
    state = rounds(workdir, model, [3.0, 2.0])
    assert (state.rounds, state.best, state.best_round) == (2, 2.0, 2)
    records = [json.loads(line) for line in workdir.metrics.read_text().splitlines()]
    assert [record["step"] for record in records] == [10, 20]
    assert [record["val_cross_entropy"] for record in records] == [3.0, 2.0]
    assert restore_checkpoint(list_checkpoints(workdir.checkpoints)[-1], model) == dataclasses.asdict(state)
    assert list(workdir.tensorboard.glob("events*"))


def test_the_last_checkpoints_are_kept_and_the_best(tmp_path, model):
    workdir = WorkDir(tmp_path)
    state = rounds(workdir, model, [5.0, 2.0, 4.0, 4.0, 4.0])
    assert steps_of(workdir) == [20, 40, 50]
    rounds(workdir, model, [1.0, 3.0], state)
    assert steps_of(workdir) == [60, 70]


def test_early_stop(tmp_path, model):
    state = rounds(WorkDir(tmp_path), model, [5.0, 4.0, 4.0, 4.5, 3.0, 2.0], patience=2)
    assert (state.rounds, state.best, state.best_round) == (4, 4.0, 2)
    assert stopped_early(state, 2)
    assert not stopped_early(state, 3)
    assert not stopped_early(state, 0)


def test_waiting_goes_on_in_a_resumed_run(tmp_path, model):
    state = rounds(WorkDir(tmp_path), model, [4.0, 5.0], patience=2)
    assert not stopped_early(state, 2)
    assert rounds(WorkDir(tmp_path), model, [4.5, 1.0], RunState(**dataclasses.asdict(state)), patience=2).rounds == 3


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_lost_run_ends_and_its_checkpoint_is_not_written(tmp_path, model, loss):
    workdir = WorkDir(tmp_path)
    with pytest.raises(FloatingPointError, match="before step 20"):
        rounds(workdir, model, [3.0, loss])
    assert steps_of(workdir) == [10]
    assert len(workdir.metrics.read_text().splitlines()) == 1


def test_progress_counts_symbols_of_steps(model, capsys):
    symbols = {30: 50, 31: 70, 32: 999}
    callback = Progress(40, 30, symbols)
    callback.set_model(model)
    callback.on_train_begin()
    callback.on_epoch_begin(3)
    for batch in range(2):
        callback.on_train_batch_begin(batch)
        callback.on_train_batch_end(batch, {"loss": np.float32(1.5)})
    logs = {"loss": 1.5, "val_cross_entropy": math.log(8)}
    callback.on_epoch_end(3, logs)
    callback.on_train_end()
    assert symbols == {32: 999}
    assert callback.symbols == 120
    assert logs["target_symbols_per_second"] == pytest.approx(120 / callback.seconds)
    assert logs["learning_rate"] == 0.5
    assert "step 32: loss 1.5000, validation cross-entropy 2.0794 (perplexity 8.00)" in capsys.readouterr().err
