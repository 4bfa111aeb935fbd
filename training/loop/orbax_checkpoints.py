"""Writes checkpoints by Orbax: each process writes its part of the variables, while training continues."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from zoo.errors import InputError


class OrbaxWriter:
    """Writes checkpoints in the background, one at a time; all processes must make the same calls."""

    def __init__(self) -> None:
        self._checkpointer = ocp.StandardCheckpointer()

    def save(self, path: Path, variables: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Begins to write variables and the rest of a run's state; the variables may change once this returns."""
        values = {name: variable.value for name, variable in variables.items()}
        self._checkpointer.save(path.absolute(), values, custom_metadata={"state": dict(state)})

    def wait(self) -> None:
        """Waits until the checkpoint is written; raises the error that prevented it."""
        self._checkpointer.wait_until_finished()


def read_orbax(path: Path, variables: Mapping[str, Any], wanted: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the values of the wanted variables, with the same sharding, and the rest of the run's state.

    Raises:
        InputError: If it is not a checkpoint of this model.
    """
    checkpointer = ocp.PyTreeCheckpointer()
    try:
        metadata = checkpointer.metadata(path.absolute())
        shapes = {name: tuple(leaf.shape) for name, leaf in metadata.item_metadata.tree.items()}
        state = dict(metadata.custom_metadata["state"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a checkpoint ({error}).") from error
    if shapes != {name: tuple(variable.shape) for name, variable in variables.items()}:
        raise InputError(f"{path} is a checkpoint of another model or of another version of Keras.")
    target = {name: _described(variable) if name in wanted else ocp.PLACEHOLDER for name, variable in variables.items()}
    try:
        values = checkpointer.restore(
            path.absolute(),
            args=ocp.args.PyTreeRestore(item=target, restore_args=ocp.checkpoint_utils.construct_restore_args(target)),
        )
    except (OSError, ValueError) as error:
        advice = "Remove this folder to resume from the checkpoint before it"
        raise InputError(f"{path} is not a complete checkpoint ({str(error).splitlines()[0]}). {advice}.") from error
    return {name: values[name] for name in wanted}, state


def _described(variable: Any) -> Any:
    value = variable.value
    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=value.sharding)
