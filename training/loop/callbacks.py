"""What happens besides the optimizer's steps: checkpoints, early stop, logs."""

import contextlib
import dataclasses
import math
import os
import time
from typing import Any

import keras
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter
from tensorboardX.summary import scalar

from training.hardware.processes import whole
from training.loop.checkpoint_files import checkpoint_path, list_checkpoints
from training.loop.checkpoints import averages_of, save_checkpoint
from training.loop.failures import LossLost
from training.loop.state import RunState, append_to_log
from zoo.errors import InputError
from zoo.workdir import WorkDir

Logs = Any
"""What Keras tells a callback: values by name."""


class Checkpoints(keras.callbacks.Callback):
    """Ends each round: validation result, early stop, log line, checkpoint — in this order, so that a resumed run
    repeats nothing and misses nothing.

    Args:
        workdir: The work directory.
        state: The run's state, updated in place.
        eval_every: Steps in a round.
        keep: How many of the last checkpoints to keep, besides the best one.
        patience: Rounds without improvement before training stops; 0 for never.
    """

    def __init__(self, workdir: WorkDir, state: RunState, eval_every: int, keep: int, patience: int):
        super().__init__()
        self.workdir, self.state, self.eval_every, self.keep, self.patience = workdir, state, eval_every, keep, patience
        self.tensorboard: Any = None

    def on_train_begin(self, logs: Logs = None) -> None:
        self.workdir.tensorboard.mkdir(parents=True, exist_ok=True)
        # Not a `SummaryWriter`, whose thread and exit hook each fail on a full disk.
        name = f"events.out.tfevents.{int(time.time())}.{os.getpid()}"
        self.tensorboard = RecordWriter(str(self.workdir.tensorboard / name))
        self._write_event(0, file_version="brain.Event:2")
        # TensorBoard then ignores what an earlier process wrote after this step.
        self._write_event(self.state.rounds * self.eval_every, session_log=SessionLog(status=SessionLog.START))
        self.begun = time.monotonic() - self.state.seconds

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        if not self.workdir.tensorboard.is_dir():
            raise InputError(f"{self.workdir.path} was removed while a run wrote into it.")
        state = self.state
        state.rounds, state.seconds = epoch + 1, time.monotonic() - self.begun
        loss = float(logs["val_cross_entropy"])
        step = state.rounds * self.eval_every
        if not math.isfinite(loss):
            # Before the checkpoint, which would be of no use to a resumed run.
            raise LossLost(loss, step)
        if loss < state.best:
            state.best, state.best_round = loss, state.rounds
        self._log(step, {name: float(value) for name, value in logs.items()})
        save_checkpoint(self.workdir, step, self.model, dataclasses.asdict(state))
        best = checkpoint_path(self.workdir.checkpoints, state.best_round * self.eval_every)
        for old in list_checkpoints(self.workdir.checkpoints)[: -self.keep] if self.workdir.writes else ():
            if old != best:
                old.unlink()
        if state.has_stalled(self.patience):
            self.model.stop_training = True

    def _log(self, step: int, values: dict[str, float]) -> None:
        append_to_log(self.workdir, {"step": step, **values, "seconds": round(self.state.seconds, 1)})
        for name, value in values.items():
            self._write_event(step, summary=scalar(name, value))
        self.tensorboard.flush()

    def _write_event(self, step: int, **content: Any) -> None:
        self.tensorboard.write(Event(wall_time=time.time(), step=step, **content).SerializeToString())

    def close(self) -> None:
        """Ends the log, also of a run that stopped early."""
        if self.tensorboard is not None:
            # Each round was flushed, or has ended the run.
            with contextlib.suppress(OSError):
                self.tensorboard.close()


class Averages(keras.callbacks.Callback):
    """Swaps the weights with their moving averages during validation."""

    def on_test_begin(self, logs: Logs = None) -> None:
        self._swap()

    def on_test_end(self, logs: Logs = None) -> None:
        self._swap()

    def _swap(self) -> None:
        # Through NumPy and not by adding and subtracting, which would round.
        for variable, average in zip(self.model.trainable_variables, averages_of(self.model), strict=True):
            value = whole(variable)
            variable.assign(whole(average))
            average.assign(value)
