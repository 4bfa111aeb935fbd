"""Computes the costs of the steps of a run without running them."""

import tempfile
from pathlib import Path
from typing import Any

import keras

from training.config.resolve import TrainingRun
from training.data.batching import Batch
from training.hardware.choice import choose_hardware
from training.hardware.compiled_step import compile_step, step_cost
from training.hardware.devices import spread_over
from training.loop.build import build
from training.loop.failures import explained
from training.loop.prepare import prepare
from zoo.errors import InputError
from zoo.workdir import ReadOnlyWorkDir, WorkDir

_NUM_BATCHES = 100
"""Number of batches, for the largest of which the step is compiled."""


def dry_run(workdir: WorkDir, run: TrainingRun) -> dict[str, Any]:
    """Returns the costs of a step of a run for each device, as XLA compiles it on JAX; nothing is trained or written.

    Batches differ in shape; the step is compiled for that of the first hundred with the most tokens, padding included.

    Raises:
        InputError: If the backend is not JAX, or for invalid data or settings.
        RunStopped: If it was interrupted, or memory or disk are full.
    """
    if keras.backend.backend() != "jax":
        raise InputError(
            "--dry_run compiles a step by XLA on JAX, which KERAS_BACKEND=jax chooses; the backend is "
            f"{keras.backend.backend()}. zoo.cost computes the costs of a forward pass on each backend."
        )
    with tempfile.TemporaryDirectory() as discarded, explained(workdir):
        prepared = prepare(ReadOnlyWorkDir(workdir.path, Path(discarded)), run, choose_hardware(run.config.training))
        with spread_over(prepared.hardware.devices, prepared.hardware.mesh):
            built = build(prepared, run.begun)
            batches = (built.batches.batch_of(step)[0] for step in range(min(len(built.batches), _NUM_BATCHES)))
            batch = max(batches, key=_tokens)
            cost = step_cost(compile_step(built.model, batch))
    return {
        "model": prepared.config.spec.name,
        "weights": built.model.count_params(),
        "precision": built.model.dtype_policy.name,
        "devices": max(1, len(prepared.hardware.devices)),
        "mesh": prepared.hardware.mesh and str(prepared.hardware.mesh),
        "batch": {name: list(array.shape) for name, array in batch[0].items()},
        "batches_per_step": prepared.config.training.accumulate_steps,
        **cost,
    }


def _tokens(batch: Batch) -> int:
    return sum(array.size for array in batch[0].values())
