"""Writes and restores checkpoints: the complete state of a run, in a `.npz` file without pickle, or by Orbax."""

import contextlib
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from training.hardware.processes import whole
from training.loop.checkpoint_files import ORBAX, checkpoint_path
from zoo.errors import InputError
from zoo.workdir import WorkDir, replacing


def _variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Returns the variables in a checkpoint: weights and states of random generators, then the optimizer's."""
    of_metrics = {id(variable) for variable in model.metrics_variables}
    of_model = [variable for variable in model.variables if id(variable) not in of_metrics]
    named = {f"model/{index:04d}": variable for index, variable in enumerate(of_model)}
    return named | {f"optimizer/{index:04d}": variable for index, variable in enumerate(model.optimizer.variables)}


def _build_optimizer(model: keras.Model) -> None:
    # The optimizer of float16 would create its variables twice.
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def averages_of(model: keras.Model) -> list[keras.Variable]:
    """Returns the moving averages of a compiled model's trainable variables; empty if the optimizer has none."""
    return [variable for variable in model.optimizer.variables if variable.path.endswith("_average")]


class CheckpointWriter:
    """Writes the checkpoints of a run, synchronously as files, or in the background by Orbax.

    All processes must call its methods, since each may have a part of the variables.

    Args:
        workdir: The work directory.
        orbax: Whether Orbax writes; each process then writes its part.
    """

    def __init__(self, workdir: WorkDir, orbax: bool = False):
        self.workdir, self._orbax = workdir, None
        if orbax:
            from training.loop.orbax_checkpoints import OrbaxWriter

            self._orbax = OrbaxWriter()

    def save(self, step: int, model: keras.Model, state: dict[str, Any]) -> Path:
        """Writes the checkpoint after a step and returns its path; `state` is the rest of the run's state, as JSON."""
        path = checkpoint_path(self.workdir.checkpoints, step)
        if self._orbax is not None:
            path = path.with_suffix(ORBAX)
            self._orbax.save(path, _variables(model), state)
            return path
        arrays: dict[str, Any] = {name: whole(variable) for name, variable in _variables(model).items()}
        if self.workdir.writes:
            with replacing(path) as temporary:
                np.savez(temporary, state=np.array(json.dumps(state)), **arrays)
        return path

    def wait(self) -> None:
        """Waits until all checkpoints are written."""
        if self._orbax is not None:
            self._orbax.wait()


def restore_checkpoint(path: Path, model: keras.Model) -> dict[str, Any]:
    """Sets the variables of a compiled model from a checkpoint and returns the rest of the run's state.

    Raises:
        InputError: If it is not a checkpoint of this model.
    """
    _build_optimizer(model)
    variables = _variables(model)
    arrays, state = _read(path, variables, set(variables))
    for name, variable in variables.items():
        variable.assign(arrays[name])
    return state


def _read(path: Path, variables: dict[str, keras.Variable], names: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the values of the named variables in a checkpoint, and the rest of the run's state."""
    if path.suffix == ORBAX:
        if keras.backend.backend() != "jax":
            raise InputError(f"{path.name} was written by Orbax, and can only be read on JAX: KERAS_BACKEND=jax.")
        from training.loop.orbax_checkpoints import read_orbax

        return read_orbax(path, variables, names)
    with _opened(path) as file:
        arrays = {
            "state": file["state"],
            **(file if names == set(variables) else {name: file[name] for name in names}),
        }
    state: dict[str, Any] = json.loads(str(arrays.pop("state")))
    expected = {name: tuple(variables[name].shape) for name in names}
    if {name: array.shape for name, array in arrays.items()} != expected:
        raise InputError(f"{path} is a checkpoint of another model or of another version of Keras.")
    return arrays, state


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yields the arrays of a checkpoint, which are read lazily."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            yield arrays
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        advice = "Remove this file to resume from the checkpoint before it"
        raise InputError(f"{path} is not a checkpoint ({error}). {advice}.") from error


def load_average(paths: list[Path], model: keras.Model) -> None:
    """Sets the weights of a model to the mean over checkpoints, or to that of their moving averages if there are any.

    States of random generators do not change.

    Raises:
        InputError: If one is not a checkpoint.
    """
    _build_optimizer(model)
    variables = _variables(model)
    names = {id(variable): name for name, variable in variables.items()}
    averaged = [names[id(variable)] for variable in averages_of(model) or model.trainable_variables]
    totals: dict[str, Any] = {}
    for path in paths:
        arrays, _ = _read(path, variables, set(averaged))
        for name, array in arrays.items():
            # In float64 if a process has the whole array; otherwise each device sums its part.
            part = (np.asarray(array, "float64") if isinstance(array, np.ndarray) else array) / len(paths)
            totals[name] = totals[name] + part if name in totals else part
    for variable, name in zip(model.trainable_variables, averaged, strict=True):
        variable.assign(totals[name])
