"""What a run computes on and how, asked of the machine once."""

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
from zoo.extras import install_command


@dataclass(frozen=True)
class Hardware:
    """What a run computes on."""

    precision: str  # the Keras dtype policy
    jit: bool = False  # whether XLA compiles the training step
    cores: int = 1  # cores that share each batch, 1 for none
    # Names of the devices that each batch is spread over; empty where there is nothing to choose.
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
    """Returns whether Orbax writes the checkpoints of a run; raises InputError where it cannot.

    `"auto"` takes it for several processes, where it is installed.
    """
    installed = importlib.util.find_spec("orbax") is not None
    if settings.checkpoints == "orbax" and (keras.backend.backend() != "jax" or not installed):
        raise InputError(
            f"training.checkpoints=orbax is for JAX with {install_command('hosts')}; the backend is "
            f"{keras.backend.backend()}."
        )
    return settings.checkpoints == "orbax" or (settings.checkpoints == "auto" and processes.count > 1 and installed)


def choose_hardware(settings: TrainingConfig, processes: Processes = ALONE) -> Hardware:
    """Returns what a run computes on, and sets TensorFlow's threads accordingly.

    Raises:
        InputError: If this machine cannot do what the settings ask for.
    """
    cores = choose_cores(settings)
    use_cores(cores)  # before TensorFlow lists its devices, after which its threads are fixed
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
    _ = hardware.share  # says whether the processes fit the mesh
    return hardware
