"""Keras callbacks of the training loop: checkpoints, early stopping, logs."""

import contextlib
import dataclasses
import math
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import keras
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter
from tensorboardX.summary import scalar

from training.hardware.processes import Processes, whole
from training.loop.checkpoint_files import checkpoint_path, list_checkpoints, remove_checkpoint, step_of
from training.loop.checkpoints import CheckpointWriter, averages_of
from training.loop.failures import LossLost, Preempted
from training.loop.state import RunState, append_to_log
from zoo.errors import InputError
from zoo.runtime.signals import held_signal
from zoo.workdir import WorkDir

Logs = Any
"""The logs that Keras passes to a callback: values by name."""


class Callbacks(keras.callbacks.CallbackList):
    """Callbacks of a training, which receive the results of a batch as tensors.

    Keras would first convert them to numbers, and so wait for the accelerator after each batch.
    """

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)


class Checkpoints(keras.callbacks.Callback):
    """Ends each round: records its validation loss, writes the log line and the checkpoint, and stops a stalled run.

    With this order, a resumed run neither repeats nor misses anything.

    Args:
        workdir: The work directory.
        state: The run's state, updated in place.
        eval_every: Steps in a round.
        keep: Number of the last checkpoints to keep, besides the best one.
        patience: Rounds without improvement before training stops; 0 for never.
        writer: Writes the checkpoints.
    """

    def __init__(
        self, workdir: WorkDir, state: RunState, eval_every: int, keep: int, patience: int, writer: CheckpointWriter
    ):
        super().__init__()
        self.workdir, self.state, self.eval_every, self.keep, self.patience = workdir, state, eval_every, keep, patience
        self.writer = writer
        self.tensorboard: Any = None

    def on_train_begin(self, logs: Logs = None) -> None:
        self.workdir.tensorboard.mkdir(parents=True, exist_ok=True)
        # The thread and the exit hook of a `SummaryWriter` would fail on a full disk.
        name = f"events.out.tfevents.{int(time.time())}.{os.getpid()}"
        self.tensorboard = RecordWriter(str(self.workdir.tensorboard / name))
        self._write_event(0, file_version="brain.Event:2")
        # TensorBoard then ignores events of an earlier process after this step.
        self._write_event(self.state.rounds * self.eval_every, session_log=SessionLog(status=SessionLog.START))
        self.begun = time.monotonic() - self.state.seconds

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if not self.workdir.tensorboard.is_dir():
            raise InputError(f"{self.workdir.path} was removed during the run.")
        state = self.state
        state.rounds, state.seconds = epoch + 1, time.monotonic() - self.begun
        loss = float(logs["val_cross_entropy"])
        step = state.rounds * self.eval_every
        if not math.isfinite(loss):
            # It is raised before a checkpoint is written, from which no run could be resumed.
            raise LossLost(loss, step)
        if loss < state.best:
            state.best, state.best_round = loss, state.rounds
        self._log(step, {name: float(value) for name, value in logs.items()})
        self.writer.save(step, self.model, dataclasses.asdict(state))
        if self.workdir.writes:
            self._remove_old()
        if state.has_stalled(self.patience):
            self.model.stop_training = True

    def _remove_old(self) -> None:
        """Removes all earlier checkpoints except the best one and the last ones of whole rounds."""
        checkpoints = list_checkpoints(self.workdir.checkpoints)
        of_rounds = [path for path in checkpoints if step_of(path) % self.eval_every == 0]
        best = checkpoint_path(self.workdir.checkpoints, self.state.best_round * self.eval_every)
        for path in checkpoints:
            if path not in (best, *of_rounds[-self.keep :]) and step_of(path) < self.state.rounds * self.eval_every:
                remove_checkpoint(path)

    def on_train_end(self, logs: Logs = None) -> None:
        self.writer.wait()
        if self.workdir.writes:
            self._remove_old()

    def _log(self, step: int, values: dict[str, float]) -> None:
        append_to_log(self.workdir, {"step": step, **values, "seconds": round(self.state.seconds, 1)})
        for name, value in values.items():
            self._write_event(step, summary=scalar(name, value))
        self.tensorboard.flush()

    def _write_event(self, step: int, **content: Any) -> None:
        self.tensorboard.write(Event(wall_time=time.time(), step=step, **content).SerializeToString())

    def close(self) -> None:
        """Closes the log, also of a run that stopped early."""
        if self.tensorboard is not None:
            # Each round has flushed it, or has ended the run with the error.
            with contextlib.suppress(OSError):
                self.tensorboard.close()


class Averages(keras.callbacks.Callback):
    """Exchanges the weights for their moving averages during validation."""

    def on_test_begin(self, logs: Logs = None) -> None:
        self._swap()

    def on_test_end(self, logs: Logs = None) -> None:
        self._swap()

    def _swap(self) -> None:
        # Adding and subtracting in place would round.
        for variable, average in zip(self.model.trainable_variables, averages_of(self.model), strict=True):
            value = whole(variable)
            variable.assign(whole(average))
            average.assign(value)


class Stop(keras.callbacks.Callback):
    """Ends all processes of a run after the same step when one receives a signal, with a checkpoint of that step.

    A single process holds signals only after its first step: until then it may compile for a long time, and has nothing
    to save. Unlike those of whole rounds, this checkpoint contains the metrics of the unfinished round, so that a
    resumed run repeats nothing.

    Args:
        processes: The processes.
        state: The run's state, shared with the other callbacks.
        eval_every: Steps in a round.
        batches_per_step: Number of batches whose gradients are accumulated in a step.
        writer: Writes the checkpoint.
        settle: Called before the checkpoint is written; raises an error if the loss is not finite.
        hold: Called by a single process to hold signals, see `zoo.runtime.signals.holding_signals`.
    """

    def __init__(
        self,
        processes: Processes,
        state: RunState,
        eval_every: int,
        batches_per_step: int,
        writer: CheckpointWriter,
        settle: Callable[[], None],
        hold: Callable[[], None],
    ):
        super().__init__()
        self.processes, self.state, self.writer, self.settle, self.hold = processes, state, writer, settle, hold
        self.eval_every, self.batches_per_step = eval_every, batches_per_step
        self.batches, self.ending, self.stepped = state.batches, False, False

    def on_train_begin(self, logs: Logs = None) -> None:
        self.begun = time.monotonic() - self.state.seconds

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self.batches, self.state.batches = self.state.batches, 0
        self._restore_metrics()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self._restore_metrics()
        self.batches += 1
        if not self.stepped and self.processes.count == 1:
            self.hold()
        self.stepped = True
        done, rest = divmod(self.batches, self.batches_per_step)
        step = self.state.rounds * self.eval_every + done
        if rest or not self.processes.should_stop(step):
            return
        self.ending = True
        if done < self.eval_every:  # otherwise `Checkpoints` writes the checkpoint of the round
            self.settle()
            if keras.backend.backend() == "jax":
                self.model.jax_state_sync()
            self.state.batches, self.state.seconds = self.batches, time.monotonic() - self.begun
            self.state.counted = [whole(variable).tolist() for variable in self.model.metrics_variables]
            self.writer.save(step, self.model, dataclasses.asdict(self.state))
            self._end()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if self.ending or held_signal():
            self._end()

    def _restore_metrics(self) -> None:
        """Adds the saved sums of an unfinished round to its metrics, once these have their variables.

        On JAX, metrics have variables from the start, and these can only be changed then; on TensorFlow, metrics have
        them only after the first step.
        """
        variables = self.model.metrics_variables
        if self.state.counted and len(variables) == len(self.state.counted):
            for variable, value in zip(variables, self.state.counted, strict=True):
                variable.assign(whole(variable) + value)
            self.state.counted = []

    def _end(self) -> None:
        self.writer.wait()
        raise Preempted(held_signal() or signal.SIGTERM)
