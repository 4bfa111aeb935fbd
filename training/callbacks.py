"""What happens beside the optimizer's steps: checkpoints, early stop, logs, progress."""

import dataclasses
import json
import math
import sys
import time

import keras
from tensorboardX import SummaryWriter
from tqdm import tqdm

from training.batching import PairBatches
from training.checkpoints import checkpoint_path, list_checkpoints, save_checkpoint
from zoo.workdir import WorkDir


@dataclasses.dataclass
class RunState:
    """What a run has to remember besides its variables.

    Args:
        rounds: Rounds done.
        best: Lowest validation cross-entropy so far.
        best_round: The round that had it, from 1.
        seconds: Training time so far.
    """

    rounds: int = 0
    best: float = math.inf
    best_round: int = 0
    seconds: float = 0.0


def stopped_early(state: RunState, patience: int) -> bool:
    """Returns whether a run has waited long enough for a better validation.

    Args:
        state: The run's state.
        patience: Rounds without improvement before training stops; 0 for never.
    """
    return bool(patience) and state.rounds - state.best_round >= patience


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

    def on_train_begin(self, logs=None):
        self.tensorboard = SummaryWriter(str(self.workdir.tensorboard), purge_step=self.state.rounds * self.eval_every)
        self.begun = time.monotonic() - self.state.seconds

    def on_epoch_end(self, epoch, logs=None):
        state = self.state
        state.rounds, state.seconds = epoch + 1, time.monotonic() - self.begun
        loss = float(logs["val_cross_entropy"])
        if loss < state.best:
            state.best, state.best_round = loss, state.rounds
        step = state.rounds * self.eval_every
        if not math.isfinite(float(logs["loss"])):
            # Before the checkpoint, which would be of no use to a resumed run.
            raise FloatingPointError(f"the loss became {logs['loss']} before step {step}")
        self._log(step, {name: float(value) for name, value in logs.items()})
        save_checkpoint(self.workdir.checkpoints, step, self.model, dataclasses.asdict(state))
        best = checkpoint_path(self.workdir.checkpoints, state.best_round * self.eval_every)
        for old in list_checkpoints(self.workdir.checkpoints)[: -self.keep]:
            if old != best:
                old.unlink()
        if stopped_early(state, self.patience):
            self.model.stop_training = True

    def _log(self, step, logs):
        record = {"step": step, **logs, "seconds": round(self.state.seconds, 1)}
        with self.workdir.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        for name, value in logs.items():
            self.tensorboard.add_scalar(name, value, step)
        self.tensorboard.flush()

    def on_train_end(self, logs=None):
        self.tensorboard.close()


class Rounds(keras.callbacks.Callback):
    """Tells the batches which round begins.

    Args:
        batches: The training batches.
    """

    def __init__(self, batches: PairBatches):
        super().__init__()
        self.batches = batches

    def on_epoch_begin(self, epoch, logs=None):
        self.batches.round = epoch


class Progress(keras.callbacks.Callback):
    """A progress bar over all steps with loss, learning rate and target symbols per second; a line a round.

    Args:
        total_steps: Steps in the whole run.
        done_steps: Steps done before.
        symbols_of_step: Target symbols of each step; taken out as the steps pass.
    """

    def __init__(self, total_steps: int, done_steps: int, symbols_of_step: dict[int, int]):
        super().__init__()
        self.total, self.step, self.symbols_of_step = total_steps, done_steps, symbols_of_step

    def on_train_begin(self, logs=None):
        # A terminal sees the bar move; a log file gets a line every ten seconds.
        interval = 0.5 if sys.stderr.isatty() else 10.0
        self.bar = tqdm(
            total=self.total,
            initial=self.step,
            unit="step",
            mininterval=interval,
            maxinterval=interval,
            dynamic_ncols=True,
        )

    def on_epoch_begin(self, epoch, logs=None):
        self.symbols, self.seconds = 0, 0.0

    def on_train_batch_begin(self, batch, logs=None):
        self.batch_begun = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        self.seconds += time.monotonic() - self.batch_begun
        self.symbols += self.symbols_of_step.pop(self.step)
        self.step += 1
        self.bar.update(1)
        rate = self.symbols / max(self.seconds, 1e-9)
        self.bar.set_postfix_str(f"loss {float(logs['loss']):.3f}, {rate:,.0f} target symbols/s", refresh=False)

    def on_epoch_end(self, epoch, logs=None):
        rate = self.symbols / max(self.seconds, 1e-9)
        logs["target_symbols_per_second"] = rate
        learning_rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        logs["learning_rate"] = learning_rate
        perplexity = math.exp(min(float(logs["val_cross_entropy"]), 30.0))
        self.bar.write(
            f"step {self.step}: loss {logs['loss']:.4f}, validation cross-entropy {logs['val_cross_entropy']:.4f} "
            f"(perplexity {perplexity:.2f}), learning rate {learning_rate:.2e}, {rate:,.0f} target symbols/s",
            file=sys.stderr,
        )

    def on_train_end(self, logs=None):
        self.bar.close()
