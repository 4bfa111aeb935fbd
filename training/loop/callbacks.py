"""What happens besides the optimizer's steps: checkpoints, early stop, logs, progress."""

import contextlib
import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import keras
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter
from tensorboardX.summary import scalar
from tqdm import tqdm

from training.loop.checkpoint_files import checkpoint_path, list_checkpoints
from training.loop.checkpoints import averages_of, save_checkpoint
from training.loop.failures import LossLost
from training.loop.state import RunState, append_to_log
from training.optimization.cross_entropy import perplexity
from zoo.workdir import WorkDir

SECONDS_BETWEEN_LINES = 30.0
"""In a log file, within a round."""
SECONDS_BETWEEN_BARS = 0.5
"""On a terminal."""

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
        save_checkpoint(self.workdir.checkpoints, step, self.model, dataclasses.asdict(state))
        best = checkpoint_path(self.workdir.checkpoints, state.best_round * self.eval_every)
        for old in list_checkpoints(self.workdir.checkpoints)[: -self.keep]:
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
            value = keras.ops.convert_to_numpy(variable)
            variable.assign(keras.ops.convert_to_numpy(average))
            average.assign(value)


class Progress(keras.callbacks.Callback):
    """Loss, learning rate, symbols per second and the time left: a bar on a terminal, else a line every half a minute;
    in both cases a line a round. A loss that is not finite ends the run.

    Args:
        total_steps: Steps in the whole run.
        done_steps: Steps done before.
        batches_per_step: Batches whose gradients make a step.
        schedule: The learning rate of each batch.
        symbols_of_batch: Real symbols of each batch; removed as the batches pass.
    """

    def __init__(
        self,
        total_steps: int,
        done_steps: int,
        batches_per_step: int,
        schedule: Callable[[int], Any],
        symbols_of_batch: dict[int, int],
    ):
        super().__init__()
        self.total, self.first = total_steps * batches_per_step, done_steps * batches_per_step
        self.done, self.batches_per_step = self.first, batches_per_step
        self.schedule, self.symbols_of_batch = schedule, symbols_of_batch
        self.bar: Any = None

    @property
    def step(self) -> int:
        """Steps done."""
        return self.done // self.batches_per_step

    def on_train_begin(self, logs: Logs = None) -> None:
        self.begun = self.shown = time.monotonic()
        self.compiling = True
        self.bar = tqdm(
            total=self.total // self.batches_per_step,
            initial=self.step,
            unit="step",
            mininterval=SECONDS_BETWEEN_BARS,
            maxinterval=SECONDS_BETWEEN_BARS,
            dynamic_ncols=True,
            disable=not sys.stderr.isatty(),
        )

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self.symbols, self.seconds = 0, 0.0

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        self.batch_begun = time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        loss = float(logs["loss"])
        now = time.monotonic()
        symbols = self.symbols_of_batch.pop(self.done)
        self.done += 1
        if self.compiling:
            # The first batch says nothing of the pace.
            self.compiling, self.begun, self.first = False, now, self.done
        else:
            self.seconds += now - self.batch_begun
            self.symbols += symbols
        if not math.isfinite(loss):
            raise LossLost(loss, -(-self.done // self.batches_per_step))
        if self.done % self.batches_per_step == 0:
            self.bar.update(1)
        if now - self.shown >= (SECONDS_BETWEEN_LINES if self.bar.disable else SECONDS_BETWEEN_BARS):
            self._show(f"loss {loss:.4f}, learning rate {self._learning_rate():.2e}, {self._rate():,.0f} symbols/s")

    def _show(self, text: str) -> None:
        if self.bar.disable:
            self._write_line(text)
        else:
            self.bar.set_postfix_str(text)
            self.shown = time.monotonic()

    def _write_line(self, text: str) -> None:
        self.bar.write(f"step {self.step}: {text}, {self._time_left()} left", file=sys.stderr)
        self.shown = time.monotonic()

    def _rate(self) -> float:
        return self.symbols / max(self.seconds, 1e-9)

    def _learning_rate(self) -> float:
        # Not from the optimizer, whose variables are elsewhere within a round on JAX.
        return float(keras.ops.convert_to_numpy(self.schedule(self.done)))

    def _time_left(self) -> str:
        """Returns the time for the remaining batches, at the pace of those in this process, validation included."""
        if self.done == self.first:
            return "unknown time"
        pace = (time.monotonic() - self.begun) / (self.done - self.first)
        return str(tqdm.format_interval(pace * (self.total - self.done)))

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        logs["symbols_per_second"], logs["learning_rate"] = self._rate(), self._learning_rate()
        validation = perplexity(logs["val_cross_entropy"])
        self._write_line(
            f"loss {logs['loss']:.4f}, validation cross-entropy {logs['val_cross_entropy']:.4f} (perplexity "
            f"{validation:{'.2f' if validation < 1e9 else '.1e'}}), learning rate {logs['learning_rate']:.2e}, "
            f"{self._rate():,.0f} symbols/s"
        )

    def close(self) -> None:
        """Ends the bar, also of a run that stopped early."""
        if self.bar is not None:
            self.bar.close()
