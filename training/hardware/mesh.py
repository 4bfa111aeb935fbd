"""Meshes of devices on JAX, over which batches and weights are spread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from training.data.batching import Share
from zoo.errors import InputError
from zoo.layers.layout import layout_of


@dataclass(frozen=True)
class Mesh:
    """Devices in rows and columns: each row computes a part of every batch, and its devices share the weights.

    Attributes:
        axes: The devices along each axis, that of the batch first; see `training.config.mesh.parse_mesh`.
        devices: The names of all devices, sorted by process.
    """

    axes: Mapping[str, int]
    devices: Sequence[str]

    def __post_init__(self) -> None:
        """Raises InputError if the number of devices does not match."""
        needed = int(np.prod(list(self.axes.values())))
        if needed != len(self.devices):
            available = f"{len(self.devices)} device{'s' * (len(self.devices) != 1)}"
            advice = ""
            if all(name.startswith("cpu") for name in self.devices):
                advice = (
                    " A processor counts as several after "
                    f"`export XLA_FLAGS=--xla_force_host_platform_device_count={needed}`."
                )
            raise InputError(f"training.mesh={self} takes {needed} devices; JAX has {available}.{advice}")

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes.items())

    @property
    def batch_parts(self) -> int:
        """Number of parts of each batch that are computed in parallel."""
        return next(iter(self.axes.values()))

    def share(self, process: int = 0, num_processes: int = 1) -> Share:
        """Returns the rows of each batch that a process makes; processes in one row of the mesh make the same rows.

        Raises:
            InputError: If the devices of a process are neither whole rows of the mesh nor a fraction of one.
        """
        per_process, per_row = len(self.devices) // num_processes, len(self.devices) // self.batch_parts
        if per_process % per_row and per_row % per_process:
            raise InputError(
                f"training.mesh={self}: the {per_process} devices of a process must be a multiple of "
                f"model={per_row}, or divide it."
            )
        first = process * per_process // per_row
        return Share(self.batch_parts, first, first + max(1, per_process // per_row))

    def distribution(self) -> Any:
        """Returns the Keras distribution of the mesh."""
        names = list(self.axes)
        return _Distribution(keras.distribution.DeviceMesh(tuple(self.axes.values()), names, list(self.devices)))


class _Distribution(keras.distribution.ModelParallel):
    """Keras' distribution, with the layout of the project's layers instead of patterns for each model."""

    def __init__(self, mesh: Any):
        # Batches already have the rows of this process only.
        super().__init__(layout_map=keras.distribution.LayoutMap(mesh), auto_shard_dataset=False)
        self.sizes = dict(zip(mesh.axis_names, mesh.shape, strict=True))

    def get_variable_layout(self, variable: Any) -> Any:
        # Variables of the optimizer have the layout of their weight.
        if getattr(variable, "_layout", None) is not None:
            return variable._layout
        axes = layout_of(variable.path, tuple(variable.shape), self.sizes)
        return keras.distribution.TensorLayout(axes, self.device_mesh)
