"""The experiments by name, a file each."""

import importlib

from experiments.experiment import Experiment
from zoo.errors import unknown_name

NAMES = (
    "bottleneck",
    "scores",
    "scaling",
    "cost",
    "distance",
    "context",
    "classification",
    "heads",
    "positions",
    "masking",
    "alignment",
    "agreement",
    "state",
    "zoo",
)


def get_experiment(name: str) -> Experiment:
    """Returns an experiment by its name.

    Raises:
        InputError: If there is none; close names are suggested.
    """
    if name not in NAMES:
        raise unknown_name("experiment", name, NAMES)
    experiment: Experiment = importlib.import_module(f"experiments.catalog.{name}").EXPERIMENT
    return experiment
