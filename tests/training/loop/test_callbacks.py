"""What happens at the end of a round, and what is left for a resumed run."""

import contextlib
import dataclasses
import errno
import json
import math
import shutil
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from training.loop.callbacks import Averages, Checkpoints
from training.loop.checkpoint_files import list_checkpoints
from training.loop.checkpoints import CheckpointWriter, averages_of, restore_checkpoint
from training.loop.failures import LossLost
from training.loop.state import RunState
from zoo.errors import InputError
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
    callback = Checkpoints(
        workdir, state, eval_every=10, keep=keep, patience=patience, writer=CheckpointWriter(workdir)
    )
    callback.set_model(model)
    model.stop_training = False
    callback.on_train_begin()
    with contextlib.closing(callback):
        for epoch, loss in enumerate(losses, start=state.rounds):
            callback.on_epoch_end(epoch, {"loss": loss, "val_cross_entropy": loss})
            if model.stop_training:
                break
    return state


def steps_of(workdir):
    return [int(path.stem.removeprefix("step_")) for path in list_checkpoints(workdir.checkpoints)]


def test_a_round_leaves_a_log_line_a_checkpoint_and_events(tmp_path, model):
    workdir = WorkDir(tmp_path)
    state = rounds(workdir, model, [3.0, 2.0])
    assert (state.rounds, state.best, state.best_round) == (2, 2.0, 2)
    records = [json.loads(line) for line in workdir.metrics.read_text().splitlines()]
    assert [(record["step"], record["val_cross_entropy"]) for record in records] == [(10, 3.0), (20, 2.0)]
    assert restore_checkpoint(list_checkpoints(workdir.checkpoints)[-1], model) == dataclasses.asdict(state)
    (path,) = workdir.tensorboard.iterdir()
    version, start, *rest = tf.compat.v1.train.summary_iterator(str(path))
    assert version.file_version == "brain.Event:2"
    assert (start.step, start.session_log.status) == (0, start.session_log.START)
    found = {(event.step, value.tag): value.simple_value for event in rest for value in event.summary.value}
    assert found == {(s, n): v for s, v in ((10, 3.0), (20, 2.0)) for n in ("loss", "val_cross_entropy")}


def test_a_directory_that_was_removed_is_not_made_anew(tmp_path, model):
    workdir = WorkDir(tmp_path / "run")
    callback = Checkpoints(workdir, RunState(), eval_every=10, keep=2, patience=0, writer=CheckpointWriter(workdir))
    callback.set_model(model)
    callback.on_train_begin()
    shutil.rmtree(workdir.path)
    with contextlib.closing(callback), pytest.raises(InputError, match="/run "):
        callback.on_epoch_end(0, {"loss": 1.0, "val_cross_entropy": 1.0})
    assert not workdir.path.exists()


def test_a_full_disk_is_told_once(tmp_path, model, monkeypatch):
    """Neither a thread nor an exit hook has a word of its own."""

    def full(writer):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tensorboardX.record_writer.RecordWriter.flush", full)
    hooks = []
    monkeypatch.setattr("atexit.register", lambda *arguments: hooks.append(arguments))
    threads = threading.active_count()
    callback = Checkpoints(
        WorkDir(tmp_path), RunState(), eval_every=10, keep=1, patience=0, writer=CheckpointWriter(WorkDir(tmp_path))
    )
    callback.set_model(model)
    callback.on_train_begin()
    with pytest.raises(OSError, match="No space left"):
        callback.on_epoch_end(0, {"loss": 1.0, "val_cross_entropy": 1.0})
    callback.close()
    assert threading.active_count() == threads and not hooks


def test_the_last_checkpoints_are_kept_and_the_best(tmp_path, model):
    workdir = WorkDir(tmp_path)
    state = rounds(workdir, model, [5.0, 2.0, 4.0, 4.0, 4.0])
    assert steps_of(workdir) == [20, 40, 50]
    rounds(workdir, model, [1.0, 3.0], state)
    assert steps_of(workdir) == [60, 70]


def test_early_stop(tmp_path, model):
    """Waiting goes on in a resumed run."""
    state = rounds(WorkDir(tmp_path), model, [5.0, 4.0, 4.0, 4.5, 3.0, 2.0], patience=2)
    assert (state.rounds, state.best, state.best_round) == (4, 4.0, 2)
    assert state.has_stalled(2)
    assert not state.has_stalled(3)
    assert not state.has_stalled(0)
    waiting = rounds(WorkDir(tmp_path / "resumed"), model, [4.0, 5.0], patience=2)
    assert not waiting.has_stalled(2)
    again = RunState(**dataclasses.asdict(waiting))
    assert rounds(WorkDir(tmp_path / "resumed"), model, [4.5, 1.0], again, patience=2).rounds == 3


def test_a_lost_run_ends_and_its_checkpoint_is_not_written(tmp_path, model):
    for loss in (math.nan, math.inf):
        workdir = WorkDir(tmp_path / str(loss))
        with pytest.raises(LossLost, match="at step 20"):
            rounds(workdir, model, [3.0, loss])
        assert steps_of(workdir) == [10]
        assert len(workdir.metrics.read_text().splitlines()) == 1


def test_averages_stand_in_during_validation_alone():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.build((None, 2))
    model.compile(keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.5), loss="mse")
    for value in (1.0, 2.0):
        model.train_on_batch(np.full((1, 2), value), np.ones((1, 1)))
    weights, averages = model.get_weights(), [np.array(average) for average in averages_of(model)]
    callback = Averages()
    callback.set_model(model)
    callback.on_test_begin()
    for weight, average, before in zip(model.get_weights(), averages, weights, strict=True):
        np.testing.assert_array_equal(weight, average)
        assert not np.array_equal(weight, before)
    callback.on_test_end()
    for weight, before in zip([*model.get_weights(), *averages_of(model)], [*weights, *averages], strict=True):
        np.testing.assert_array_equal(np.array(weight), before)
