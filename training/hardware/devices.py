"""Chooses the devices of a run: each, or each row of a mesh, computes its rows of every batch."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from training.config.mesh import parse_mesh
from training.config.options import TrainingConfig
from training.hardware.mesh import Mesh
from zoo.errors import InputError


def _available() -> list[str]:
    """Returns the devices that a batch can be spread over: accelerators if there are any, else processors."""
    if keras.backend.backend() == "jax":
        import jax

        # Sorted by process, as a mesh requires.
        devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
        return [f"{device.platform}:{device.id}" for device in devices]
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        return [device.name.partition("device:")[2] for device in devices]
    return []


def choose_mesh(settings: TrainingConfig, num_processes: int = 1) -> Mesh | None:
    """Returns the mesh of devices of a run; on JAX several devices form one by default.

    Several processes form one mesh of all their devices.

    Raises:
        InputError: If the mesh does not fit the devices, or the backend is not JAX.
    """
    backend = keras.backend.backend()
    if not settings.mesh and num_processes > 1:
        return Mesh({"data": len(_available()), "model": 1}, _available())
    if not settings.mesh:
        devices = choose_devices(settings) if backend == "jax" else []
        return Mesh({"data": len(devices), "model": 1}, devices) if len(devices) > 1 else None
    if backend != "jax":
        raise InputError(
            f"training.mesh is for JAX, which KERAS_BACKEND=jax chooses; the backend is {backend}. "
            f"Received: training.mesh={settings.mesh}."
        )
    return Mesh(parse_mesh(settings.mesh), _available())


def choose_devices(settings: TrainingConfig) -> list[str]:
    """Returns the names of the devices of a run; none if the backend chooses them.

    Raises:
        InputError: If there are fewer devices than requested, or they do not support the settings together.
    """
    available, count = _available(), settings.devices
    if count > max(len(available), 1):
        raise InputError(
            f"training.devices={count} exceeds the number of devices that {keras.backend.backend()} can spread a batch "
            f"over, {max(len(available), 1)}."
        )
    if not count:
        # The cores of one processor already share a batch.
        use_all = available and not available[0].lower().startswith("cpu") and not _single_device_setting(settings)
        count = len(available) if use_all else 1
    if count > 1 and (reason := _single_device_setting(settings)):
        raise InputError(f"{reason} is for one device under TensorFlow. Received: training.devices={count}.")
    return available[:count]


def _single_device_setting(settings: TrainingConfig) -> str:
    """Returns the setting that requires a single device, if any."""
    if keras.backend.backend() == "tensorflow":
        # Whether a step is applied must be decided for all devices at once, but Keras decides it on each.
        if settings.accumulate_steps > 1:
            return f"training.accumulate_steps={settings.accumulate_steps}"
        if settings.precision == "mixed_float16":
            return "training.precision=mixed_float16"
    return ""


@contextlib.contextmanager
def on_one_device() -> Iterator[None]:
    """Ignores the mesh for models made in the block."""
    mesh = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(mesh)


def build_compiled(model: keras.Model, batch: Any) -> None:
    """Builds the loss and the metrics of a compiled model from a batch, with several devices under TensorFlow.

    Keras would build them from the mean of the devices' batches, in which ids are no longer integers.
    """
    if keras.backend.backend() == "tensorflow" and model.distribute_strategy.num_replicas_in_sync > 1:
        model._symbolic_build(data_batch=batch)


@contextlib.contextmanager
def spread_over(names: Sequence[str], mesh: Mesh | None = None) -> Iterator[None]:
    """Spreads models made in the block, and their batches, over a mesh, or over devices under TensorFlow."""
    if mesh is not None:
        with mesh.distribution().scope():
            yield
    elif len(names) > 1:
        import tensorflow as tf

        with tf.distribute.MirroredStrategy(list(names)).scope():
            yield
    else:
        yield
