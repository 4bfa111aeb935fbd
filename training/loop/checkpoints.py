"""Checkpoints: all that is needed to go on with a run as if it had not stopped; a `.npz` each, never pickled."""

import contextlib
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from training.hardware.processes import whole
from training.loop.checkpoint_files import checkpoint_path
from zoo.errors import InputError
from zoo.workdir import WorkDir, replacing


def _variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the variables in a checkpoint: weights and states of random generators, then those of the optimizer."""
    of_metrics = {id(variable) for variable in model.metrics_variables}
    of_model = [variable for variable in model.variables if id(variable) not in of_metrics]
    named = {f"model/{index:04d}": variable for index, variable in enumerate(of_model)}
    return named | {f"optimizer/{index:04d}": variable for index, variable in enumerate(model.optimizer.variables)}


def _build_optimizer(model: keras.Model) -> None:
    # The optimizer of float16 would make its variables twice.
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def averages_of(model: keras.Model) -> list[keras.Variable]:
    """Returns the moving averages of a compiled model's trainable variables; none where the optimizer has none."""
    return [variable for variable in model.optimizer.variables if variable.path.endswith("_average")]


def save_checkpoint(workdir: WorkDir, step: int, model: keras.Model, state: dict[str, Any]) -> Path:
    """Writes the checkpoint after a step and returns its path; `state` is the rest of the run's state, for JSON.

    Of several processes all have to call it, since each may have a part of the variables; one of them writes.
    """
    path = checkpoint_path(workdir.checkpoints, step)
    arrays: dict[str, Any] = {name: whole(variable) for name, variable in _variables(model).items()}
    if workdir.writes:
        with replacing(path) as temporary:
            np.savez(temporary, state=np.array(json.dumps(state)), **arrays)
    return path


def restore_checkpoint(path: Path, model: keras.Model) -> dict[str, Any]:
    """Sets the variables of a compiled model from a checkpoint and returns the rest of the run's state.

    Raises:
        InputError: If it is no checkpoint, or that of another model.
    """
    _build_optimizer(model)
    with _opened(path) as file:
        variables, arrays = _variables(model), {"state": file["state"], **file}
    state: dict[str, Any] = json.loads(str(arrays.pop("state")))
    if {name: array.shape for name, array in arrays.items()} != {name: v.shape for name, v in variables.items()}:
        raise InputError(f"{path} is a checkpoint of another model or of another version of Keras.")
    for name, variable in variables.items():
        variable.assign(arrays[name])
    return state


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yields the arrays of a checkpoint, read when they are asked for."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            yield arrays
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        advice = "Without this file, --resume goes on from the checkpoint before it"
        raise InputError(f"{path} is not a checkpoint ({error}). {advice}.") from error


def load_average(paths: list[Path], model: keras.Model) -> None:
    """Sets the weights of a model to the mean over checkpoints, of the moving averages where there are any.

    States of random generators do not change.

    Raises:
        InputError: If one is no checkpoint.
    """
    _build_optimizer(model)
    names = {id(variable): name for name, variable in _variables(model).items()}
    averaged = averages_of(model) or model.trainable_variables
    totals = [np.zeros(variable.shape) for variable in averaged]
    for path in paths:
        with _opened(path) as arrays:
            for variable, total in zip(averaged, totals, strict=True):
                total += arrays[names[id(variable)]] / len(paths)
    for variable, total in zip(model.trainable_variables, totals, strict=True):
        variable.assign(total)
