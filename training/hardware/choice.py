"""What a run computes on and how, asked of the machine once."""

from dataclasses import dataclass

from training.config.options import TrainingConfig
from training.hardware.cores import choose_cores, use_cores
from training.hardware.devices import choose_devices
from training.hardware.precision import dtype_policy, use_xla


@dataclass(frozen=True)
class Hardware:
    """What a run computes on."""

    precision: str  # the Keras dtype policy
    jit: bool = False  # whether XLA compiles the training step
    cores: int = 1  # cores that share each batch, 1 for none
    # Names of the devices that each batch is spread over; empty where there is nothing to choose.
    devices: tuple[str, ...] = ()

    @property
    def batch_parts(self) -> int:
        """Parts of each batch that are computed side by side."""
        return max(len(self.devices), self.cores)


def choose_hardware(settings: TrainingConfig) -> Hardware:
    """Returns what a run computes on, and sets TensorFlow's threads accordingly.

    Raises:
        InputError: If this machine cannot do what the settings ask for.
    """
    cores = choose_cores(settings)
    use_cores(cores)  # before TensorFlow lists its devices, after which its threads are fixed
    return Hardware(dtype_policy(settings.precision), use_xla(settings.jit), cores, tuple(choose_devices(settings)))
