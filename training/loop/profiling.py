"""A trace of a few batches for TensorBoard's profiler."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

# The first batch that is traced, after the compilation.
FIRST_BATCH = 10
NUM_BATCHES = 5


def _tracer(folder: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Returns the functions that start and stop a trace into a folder."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return lambda: tf.profiler.experimental.start(folder), tf.profiler.experimental.stop
    if keras.backend.backend() == "jax":
        import jax

        return lambda: jax.profiler.start_trace(folder), jax.profiler.stop_trace
    import torch

    profiler = torch.profiler.profile(on_trace_ready=torch.profiler.tensorboard_trace_handler(folder))
    return profiler.start, profiler.stop


class Profile(keras.callbacks.Callback):
    """Traces some batches into a folder; `tensorboard --logdir` shows them if it has tensorboard-plugin-profile."""

    def __init__(self, folder: Path):
        super().__init__()
        self.folder, self.num_batches, self.running = folder, 0, False
        self.start, self.stop = _tracer(str(folder))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.num_batches == FIRST_BATCH:
            self.start()
            self.running = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.num_batches += 1
        if self.num_batches == FIRST_BATCH + NUM_BATCHES:
            self.close()

    def close(self) -> None:
        """Ends the trace, also of a run that stopped early, and reports its path on standard error."""
        if self.running:
            self.running = False
            self.stop()
            traced = self.num_batches - FIRST_BATCH
            print(
                f"the profile of {traced} {'batch' if traced == 1 else 'batches'} is in {self.folder}",
                file=sys.stderr,
            )
        elif self.num_batches <= FIRST_BATCH:
            print(
                f"no profile: it begins after batch {FIRST_BATCH}; the run had only {self.num_batches}", file=sys.stderr
            )
