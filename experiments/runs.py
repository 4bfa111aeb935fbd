"""Trained runs as cells of an experiment, by the commands that users have."""

import json
import re
from pathlib import Path
from typing import Any

from experiments.experiment import Cell, ExperimentRequest
from training.loop.resolve import TrainingRequest, resolve_run
from zoo.workdir import WorkDir


def train_run(
    model: str, data: str, settings: dict[str, Any], cell: Cell, request: ExperimentRequest, name: str
) -> Path:
    """Trains a model, or goes on with its training, and returns its work directory.

    Args:
        model: Its name.
        data: SPEC of the data.
        settings: Settings by name, such as `{"training.max_steps": 100}`, as for `--set`.
        cell: The cell, whose seed is that of the training.
        request: Of the experiment.
        name: Of the experiment; runs are in a folder of this name.
    """
    from training.loop.trainer import train

    words = re.sub(r"[^\w.=-]+", "_", str(cell))
    workdir = WorkDir(request.workdir / name / words)
    values = {"training.precision": "float32", **settings, "training.seed": cell.seed}
    asked = TrainingRequest(model, data, [f"{key}={value}" for key, value in values.items()])
    if not _finished(workdir):
        train(workdir, resolve_run(workdir, asked, workdir.config.exists()))
    return workdir.path


def _finished(workdir: WorkDir) -> bool:
    return workdir.model.exists() and any('"final"' in line for line in _log(workdir.path))


def _log(path: Path) -> list[str]:
    log = path / "metrics.jsonl"
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def rounds(path: Path) -> list[dict[str, Any]]:
    """Returns what a training has logged of each round so far."""
    lines = [json.loads(line) for line in _log(path)]
    return [line for line in lines if "final" not in line]


def final_metrics(path: Path) -> dict[str, float]:
    """Returns the validation metrics that a finished training has written last."""
    metrics = json.loads(_log(path)[-1])
    return {name: value for name, value in metrics.items() if isinstance(value, float)}
