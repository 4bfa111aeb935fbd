"""Reports the progress of a run on standard error: a bar on a terminal, and lines with the time of day."""

import contextlib
import itertools
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
from tqdm import tqdm

from training.loop.failures import LossLost
from training.optimization.cross_entropy import perplexity
from zoo.runtime.signals import held_signal

SECONDS_UNNOTICED = 2.0
"""Seconds before `taking_long` writes a line."""
SECONDS_BETWEEN_LINES = 30.0
"""Seconds between lines of a log file, within a round."""
SECONDS_BETWEEN_BARS = 0.5
"""Seconds between updates of the bar on a terminal."""

_BAR = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{postfix}"
_WIDTH_OF_BAR = 15

Logs = Any
"""The logs that Keras passes to a callback: values by name."""


def announce(text: str) -> None:
    """Writes a line that begins with the time of day, in a log file with the date as well.

    Ctrl-C also ends the reader of a pipe, such as `tee`: while a signal is held, a broken pipe is ignored.
    """
    with contextlib.suppress(BrokenPipeError) if held_signal() else contextlib.nullcontext():
        tqdm.write(f"{_clock()} {text}", file=sys.stderr)
        sys.stderr.flush()


@contextlib.contextmanager
def taking_long(doing: str) -> Iterator[None]:
    """Announces the work of the block if it takes more than two seconds; an earlier error is printed alone."""
    timer = threading.Timer(SECONDS_UNNOTICED, announce, [doing])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _clock() -> str:
    return time.strftime("%H:%M:%S" if sys.stderr.isatty() else "%Y-%m-%d %H:%M:%S")


def _columns() -> int:
    """Returns the number of characters that fit into a line; unlimited for a log file."""
    if not sys.stderr.isatty():
        return sys.maxsize
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _fitting(parts: Sequence[str], columns: int) -> str:
    """Returns the first parts of a line that fit into it, at least one; important parts come first."""
    lines = itertools.accumulate(parts, "{}, {}".format)
    return max((line for line in lines if len(line) <= columns), key=len, default=parts[0])


class Progress(keras.callbacks.Callback):
    """Reports loss, tokens per second and the remaining time; a loss that is not finite ends the run.

    It shows a bar on a terminal and otherwise writes a line every half minute; in both cases, it writes a line for each
    round. The loss of a batch is read after the next batch has started, so that an accelerator is never idle.

    Args:
        total_steps: Steps in the whole run.
        done_steps: Steps done before.
        batches_per_step: Number of batches whose gradients are accumulated in a step.
        schedule: The learning rate of each batch.
        tokens_of_batch: Number of tokens of each batch, without padding; entries are removed when they are read.
        validation_batches: Number of batches of a validation.
        best: The lowest validation cross-entropy so far.
        tokens_at_peak: Tokens per second at the peak of the devices, for the MFU; `None` if unknown.
        compiled: Whether the step was compiled before, in this process.
    """

    def __init__(
        self,
        total_steps: int,
        done_steps: int,
        batches_per_step: int,
        schedule: Callable[[int], Any],
        tokens_of_batch: dict[int, int],
        validation_batches: int,
        best: float = math.inf,
        tokens_at_peak: float | None = None,
        compiled: bool = False,
    ):
        super().__init__()
        self.total, self.first = total_steps * batches_per_step, done_steps * batches_per_step
        self.done, self.batches_per_step = self.first, batches_per_step
        self.schedule, self.tokens_of_batch = schedule, tokens_of_batch
        self.validation_batches, self.best = validation_batches, best
        self.tokens_at_peak, self.compiling = tokens_at_peak, not compiled
        self.loss = math.nan
        self.unread: Any = None  # the loss of the last batch
        self.bar: Any = None

    @property
    def step(self) -> int:
        """Steps done."""
        return self.done // self.batches_per_step

    def on_train_begin(self, logs: Logs = None) -> None:
        self.begun = self.shown = time.monotonic()
        self.bar = tqdm(
            total=self.total // self.batches_per_step,
            initial=self.step,
            bar_format=_BAR,
            mininterval=SECONDS_BETWEEN_BARS,
            maxinterval=SECONDS_BETWEEN_BARS,
            ncols=_columns(),
            disable=not sys.stderr.isatty(),
        )
        if self.compiling:
            self._show(["compiling the first step"])

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self.tokens, self.seconds, self.read_at = 0, 0.0, time.monotonic()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        self.settle()
        self.unread = logs["loss"]
        self.done += 1
        if self.compiling:
            # The first batch includes the compilation.
            self.settle()
            self.compiling, self.begun, self.first = False, self.read_at, self.done
            self.tokens, self.seconds = 0, 0.0
        if self.done % self.batches_per_step == 0:
            self.bar.update(1)
        if self._is_due():
            self._show([f"loss {self.loss:.4f}", *self._pace()])

    def settle(self) -> None:
        """Waits for the loss of the last batch, unless it was already read.

        Raises:
            LossLost: If it is not finite.
        """
        if self.unread is None:
            return
        self.loss, self.unread = float(self.unread), None
        now = time.monotonic()
        self.seconds, self.read_at = self.seconds + now - self.read_at, now
        self.tokens += self.tokens_of_batch.pop(self.done - 1)
        if not math.isfinite(self.loss):
            raise LossLost(self.loss, -(-self.done // self.batches_per_step))

    def on_test_begin(self, logs: Logs = None) -> None:
        self.settle()

    def on_test_batch_end(self, batch: int, logs: Logs = None) -> None:
        if self._is_due():
            self._show([f"validating {batch + 1}/{self.validation_batches}"])

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self.settle()
        # The name in `metrics.jsonl` is that of older versions.
        logs["symbols_per_second"], logs["learning_rate"] = self.tokens_per_second, self.learning_rate
        validation = logs["val_cross_entropy"]
        self.best = min(self.best, validation)
        quality = f"perplexity {perplexity(validation):{'.2f' if validation < 20 else '.1e'}}"
        if "val_accuracy" in logs:
            quality = f"accuracy {logs['val_accuracy']:.4f}"
        self._write_line(
            [f"loss {logs['loss']:.4f}", f"validation {validation:.4f}", f"best {self.best:.4f}", quality]
            + self._pace()
        )

    def close(self) -> None:
        """Closes the bar, also of a run that stopped early."""
        if self.bar is not None:
            self.bar.close()

    def _is_due(self) -> bool:
        return time.monotonic() - self.shown >= (SECONDS_BETWEEN_LINES if self.bar.disable else SECONDS_BETWEEN_BARS)

    def _show(self, parts: list[str]) -> None:
        """Shows the parts beside the bar, or as a line."""
        if self.bar.disable:
            self._write_line(parts)
            return
        steps = f"{self.step}/{self.bar.total}"
        self.bar.ncols = columns = _columns()
        width = columns - len(f"100%|| {steps}, ") - _WIDTH_OF_BAR
        self.bar.set_postfix_str(_fitting(parts, width))
        self.shown = time.monotonic()

    def _write_line(self, parts: list[str]) -> None:
        steps = f"step {self.step:,}/{self.total // self.batches_per_step:,}"
        announce(_fitting([f"{steps}: {parts[0]}", *parts[1:]], _columns() - len(f"{_clock()} ")))
        self.shown = time.monotonic()

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second in this round, without padding; the time includes waiting for data."""
        return self.tokens / max(self.seconds, 1e-9)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next batch."""
        # On JAX, the variables of the optimizer are not updated within a round.
        return float(keras.ops.convert_to_numpy(self.schedule(self.done)))

    def _pace(self) -> list[str]:
        """Returns the remaining time and the tokens per second, once batches were measured, and the learning rate."""
        parts = [f"learning rate {self.learning_rate:.2e}"]
        if self.tokens:
            rate = self.tokens_per_second
            share = f" (MFU {rate / self.tokens_at_peak:.1%})" if self.tokens_at_peak else ""
            parts.insert(0, f"{rate:,.0f} tokens/s{share}")
        if self.done > self.first:
            seconds = (time.monotonic() - self.begun) / (self.done - self.first) * (self.total - self.done)
            parts.insert(0, f"{tqdm.format_interval(seconds)} left")
        return parts
