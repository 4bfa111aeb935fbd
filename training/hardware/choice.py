"""Chooses the hardware of a run, its precision and its compiler, once."""

import importlib.util
from dataclasses import dataclass

import keras

from training.config.options import TrainingConfig
from training.data.batching import Share
from training.hardware.cores import choose_cores, use_cores
from training.hardware.devices import choose_devices, choose_mesh
from training.hardware.mesh import Mesh
from training.hardware.precision import dtype_policy, use_xla
from training.hardware.processes import ALONE, Processes
from zoo.errors import InputError
from zoo.runtime.extras import install_command


@dataclass(frozen=True)
class Hardware:
    """The devices, precision and compiler of a run."""

    precision: str  # the Keras dtype policy
    jit: bool = False  # whether XLA compiles the training step
    cores: int = 1  # number of cores that share each batch
    # Names of the devices that each batch is spread over; empty if the backend chooses them.
    devices: tuple[str, ...] = ()
    mesh: Mesh | None = None  # how these devices share batches and weights, on JAX
    processes: Processes = ALONE
    orbax: bool = False  # whether Orbax writes the checkpoints

    @property
    def share(self) -> Share:
        """The rows of each batch that this process makes."""
        if self.mesh is None:
            return Share(max(len(self.devices), self.cores))
        return self.mesh.share(self.processes.index, self.processes.count)


def use_orbax(settings: TrainingConfig, processes: Processes) -> bool:
    """Returns whether Orbax writes the checkpoints of a run; raises InputError if it is requested but unavailable.

    `"auto"` uses Orbax for several processes, if it is installed.
    """
    installed = importlib.util.find_spec("orbax") is not None
    if settings.checkpoints == "orbax" and (keras.backend.backend() != "jax" or not installed):
        raise InputError(
            f"training.checkpoints=orbax is for JAX with {install_command('hosts')}; the backend is "
            f"{keras.backend.backend()}."
        )
    return settings.checkpoints == "orbax" or (settings.checkpoints == "auto" and processes.count > 1 and installed)


def choose_hardware(settings: TrainingConfig, processes: Processes = ALONE) -> Hardware:
    """Returns the hardware of a run, and sets TensorFlow's threads accordingly.

    Raises:
        InputError: If this machine does not support the settings.
    """
    cores = choose_cores(settings)
    use_cores(cores)  # before TensorFlow lists its devices, which fixes its threads
    mesh = choose_mesh(settings, processes.count)
    devices = choose_devices(settings) if mesh is None else mesh.devices
    hardware = Hardware(
        dtype_policy(settings.precision),
        use_xla(settings.jit),
        cores,
        tuple(devices),
        mesh,
        processes,
        use_orbax(settings, processes),
    )
    _ = hardware.share  # raises if the processes do not fit the mesh
    return hardware
