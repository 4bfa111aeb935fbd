"""Training on several local devices: each computes its rows of every batch, and all have the same weights."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from training.config.options import TrainingConfig
from training.data.batching import Batch, Batches
from zoo.errors import InputError


def _available() -> list[str]:
    """Returns the devices that a batch can be spread over: accelerators where there are any, else processors."""
    if keras.backend.backend() == "jax":
        return list(keras.distribution.list_devices())
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        return [device.name.partition("device:")[2] for device in devices]
    return []


def choose_devices(settings: TrainingConfig) -> list[str]:
    """Returns the names of the devices that a run takes; none where there is nothing to choose.

    Raises:
        InputError: If there are not as many as asked for, or they cannot do together what the settings say.
    """
    available, count = _available(), settings.devices
    if count > max(len(available), 1):
        raise InputError(
            f"training.devices={count} is more than {keras.backend.backend()} can spread a batch over here, which is "
            f"{max(len(available), 1)}."
        )
    if not count:
        # Cores of a processor share a batch anyway.
        together = available and not available[0].lower().startswith("cpu") and not _single_device_setting(settings)
        count = len(available) if together else 1
    if count > 1 and (reason := _single_device_setting(settings)):
        raise InputError(f"{reason} is for one device under TensorFlow. Received: training.devices={count}.")
    return available[:count]


def _single_device_setting(settings: TrainingConfig) -> str:
    """Returns the setting that only one device can follow, if any."""
    if keras.backend.backend() == "tensorflow":
        # Both would have to decide on all devices at once whether a step is taken; Keras decides on each.
        if settings.accumulate_steps > 1:
            return f"training.accumulate_steps={settings.accumulate_steps}"
        if settings.precision == "mixed_float16":
            return "training.precision=mixed_float16"
    return ""


@contextlib.contextmanager
def spread_over(names: Sequence[str]) -> Iterator[None]:
    """Spreads models that are made in the block, and their batches, over devices; with one or none nothing changes."""
    if len(names) < 2:
        yield
    elif keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.distribute.MirroredStrategy(list(names)).scope():
            yield
    else:
        with keras.distribution.DataParallel(devices=list(names)).scope():
            yield


class EvenBatches(Batches):
    """Batches whose rows divide evenly among devices or cores; the last row is repeated with weight 0."""

    def __init__(self, batches: Batches, parts: int):
        super().__init__(batches.steps)
        self.batches, self.parts, self.structure = batches, parts, batches.structure

    def __len__(self) -> int:
        return len(self.batches)

    def batch_of(self, step: int) -> tuple[Batch, int]:
        (inputs, outputs, weights), symbols = self.batches.batch_of(step)
        missing = -len(outputs) % self.parts

        def filled(array: Any) -> Any:
            return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])

        inputs = {name: filled(array) for name, array in inputs.items()}
        weights = np.concatenate([weights, np.zeros_like(weights[:1]).repeat(missing, axis=0)])
        return (inputs, filled(outputs), weights), symbols
