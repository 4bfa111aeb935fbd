"""Which precision a processor trains a model faster in: measured on its own step, where the machine does not tell."""

import dataclasses
import time
from typing import Any

import keras

from training.data.batching import Batches
from training.hardware.precision import MEASURED, without_rewriting
from training.loop.build import compile_model
from training.loop.prepare import PreparedRun
from training.loop.progress import announce
from zoo.registry import create_model

# Multiplications of a training that takes minutes, below which measuring would cost a noticeable share of it.
_WORTH_MEASURING = 1e14
_ROUNDS, _SECONDS = 5, 10.0
# bfloat16 has to be worth its rounding.
_GAIN = 0.95


def settle_precision(run: PreparedRun, batches: Batches) -> PreparedRun:
    """Returns a run with its precision, which is measured if it is still open and the training is long.

    Both take their steps in turns on the first batch; the quickest step counts. That takes as long as compiling the
    step twice and ten seconds. A shorter training is in float32.
    """
    if run.hardware.precision != MEASURED:
        return run
    precision = _measure(run, batches) if _takes_minutes(run) else "float32"
    keras.utils.clear_session()  # else what is built next has other names
    return run.with_precision(precision)


def _takes_minutes(run: PreparedRun) -> bool:
    config, settings = run.config, run.config.training
    num_parameters: int = create_model(config.spec.name, **config.model).count_params()
    symbols = settings.batch_tokens * settings.accumulate_steps * settings.total_steps
    return 6 * num_parameters * symbols >= _WORTH_MEASURING


def _measure(run: PreparedRun, batches: Batches) -> str:
    begun = time.monotonic()
    announce("measuring the precisions; training.precision=float32 or mixed_bfloat16 leaves it out")
    models = {precision: _compile(run, precision) for precision in ("float32", "mixed_bfloat16")}
    seconds = _quickest_steps(models, batches.batch_of(0)[0])
    precision = "mixed_bfloat16" if seconds["mixed_bfloat16"] < _GAIN * seconds["float32"] else "float32"
    times = ", ".join(f"{1000 * value:,.0f} ms in {name}" for name, value in seconds.items())
    announce(f"a step takes {times}: {precision} (measured in {time.monotonic() - begun:.0f} s)")
    return precision


def _compile(run: PreparedRun, precision: str) -> keras.Model:
    # As of a begun run, since the weights do not matter.
    return compile_model(run.config, dataclasses.replace(run.hardware, precision=precision), begun=True)


def _quickest_steps(models: dict[str, keras.Model], batch: Any) -> dict[str, float]:
    """Returns the seconds of the quickest step of each model, after a first one that compiles it."""
    seconds = dict.fromkeys(models, float("inf"))
    with without_rewriting():
        for model in models.values():
            model.train_on_batch(*batch)
        begun = time.monotonic()
        for _ in range(_ROUNDS):
            for name, model in models.items():
                start = time.perf_counter()
                model.train_on_batch(*batch)
                seconds[name] = min(seconds[name], time.perf_counter() - start)
            if time.monotonic() - begun > _SECONDS:
                break
    return seconds
