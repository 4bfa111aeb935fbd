"""Trains runs for cells of an experiment, like the commands for users."""

import json
import re
from pathlib import Path
from typing import Any

from experiments.experiment import Cell, ExperimentRequest
from training.config.resolve import TrainingRequest, resolve_run
from zoo.workdir import WorkDir


def train_run(
    model: str, data: str, settings: dict[str, Any], cell: Cell, request: ExperimentRequest, name: str
) -> Path:
    """Trains a model, or resumes its training, and returns its work directory.

    Args:
        model: The name of the model.
        data: SPEC of the data.
        settings: Settings by name, such as `{"training.max_steps": 100}`, as for `--set`.
        cell: The cell, whose seed is used for the training.
        request: The request of the experiment.
        name: The name of the experiment, and of the folder of its runs.
    """
    from training.loop.trainer import train

    words = re.sub(r"[^\w.=-]+", "_", str(cell))
    workdir = WorkDir(request.workdir / name / words)
    values = {"training.precision": "float32", **settings, "training.seed": cell.seed}
    training = TrainingRequest(model, data, [f"{key}={value}" for key, value in values.items()])
    if not _finished(workdir):
        train(workdir, resolve_run(workdir, training, workdir.config.exists()))
    return workdir.path


def _finished(workdir: WorkDir) -> bool:
    return workdir.model.exists() and any('"final"' in line for line in _log(workdir.path))


def _log(path: Path) -> list[str]:
    log = path / "metrics.jsonl"
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def rounds(path: Path) -> list[dict[str, Any]]:
    """Returns the log of each round of a training so far."""
    lines = [json.loads(line) for line in _log(path)]
    return [line for line in lines if "final" not in line]


def final_metrics(path: Path) -> dict[str, float]:
    """Returns the final validation metrics of a finished training."""
    metrics = json.loads(_log(path)[-1])
    return {name: value for name, value in metrics.items() if isinstance(value, float)}
