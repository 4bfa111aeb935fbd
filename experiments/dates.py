"""Trains models on the generated `dates` for cells of experiments, in a minute each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.experiment import Cell, ExperimentRequest
from experiments.runs import train_run

STEPS = 400
QUICK_STEPS = 240
_RECURRENT = {"embedding_dim": 64, "units": 96, "dropout": 0.1}
_SIZES: dict[str, dict[str, Any]] = {
    "rnnsearch": {**_RECURRENT, "encoder_units": 48, "attention_units": 96, "readout_units": 64},
    "luong": {**_RECURRENT, "num_layers": 1, "bidirectional": True},
    "transformer": {"num_layers": 2, "model_dim": 64, "intermediate_dim": 128, "dropout": 0.1, "normalize_first": True},
}


def trained(model: str, options: Mapping[str, Any], cell: Cell, request: ExperimentRequest, name: str) -> Path:
    """Trains a model of about 100,000 weights on `dates`, or resumes its training, and returns its work directory.

    Args:
        model: The name of the model.
        options: Its options, besides the sizes, which are fixed.
        cell: The cell; cells with the same text share a training.
        request: The request of the experiment.
        name: The name of the experiment.
    """
    steps = QUICK_STEPS if request.quick else STEPS
    sizes = next(sizes for family, sizes in _SIZES.items() if model.startswith(family))
    settings = {f"model.{key}": value for key, value in {**sizes, **options}.items()}
    settings |= {
        "training.max_steps": steps,
        "training.eval_every": max(steps // 2, 1),
        "training.batch_tokens": 2048,
        "training.learning_rate": 4e-3,
        "training.schedule": "constant",
        "training.warmup_steps": max(steps // 8, 1),
        "training.cooldown": 0.5,
        "training.average_checkpoints": 1,
        "training.label_smoothing": 0.0,
    }
    return train_run(model, "dates", settings, cell, request, name)
