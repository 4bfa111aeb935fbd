"""What accelerators can do at most, and how quickly a training would go on them if all of it was of use."""

import itertools
from typing import Any

import keras
import numpy as np

import zoo
from training.data.batching import Batches
from training.hardware.choice import Hardware

PEAKS = {"a100": 312e12, "h100": 989e12, "h200": 989e12, "tpu-v5e": 197e12, "tpu-v5p": 459e12}
"""Operations per second of a device, dense, in bfloat16, as its maker gives them; see `benchmarks.scaling`."""

_KINDS = {
    "NVIDIA A100-SXM4-40GB": "a100",
    "NVIDIA A100-SXM4-80GB": "a100",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H200": "h200",
    "TPU v5 lite": "tpu-v5e",
    "TPU v5e": "tpu-v5e",
    "TPU v5": "tpu-v5p",
    "TPU v5p": "tpu-v5p",
}
"""What drivers call them. Others of the same series, such as the H100 for PCIe, have other peaks."""


def peak_of(kind: str) -> float | None:
    """Returns the operations per second of a device by what its driver calls it; `None` if they are not known."""
    return PEAKS.get(_KINDS.get(kind, ""))


_BATCHES = 16
"""Batches whose mean lengths stand for all."""


def symbols_per_second_at_peak(model: keras.Model, batches: Batches, hardware: Hardware) -> float | None:
    """Returns how many symbols a run would train on in a second at the peak of its devices.

    What it reaches of this is its model FLOP utilisation (Chowdhery et al. 2022, appendix B): the operations of the
    model, forward and twice as many backward, for symbols that count, against the peak. Padding, and what is computed
    again, do not count.

    Returns:
        The rate; `None` if the peak is not known, as of processors, or is not that of the precision.
    """
    if "float16" not in hardware.precision or (peak := peak_of(device_kind())) is None:
        return None
    return max(1, len(hardware.devices)) * peak / operations_per_symbol(model, batches)


def operations_per_symbol(model: keras.Model, batches: Batches) -> float:
    """Returns the additions and multiplications of training for a symbol: three times those forward, as often assumed.

    They are those of examples whose sides have the mean lengths of the first batches.
    """
    lengths: dict[str, list[Any]] = {}
    for step in range(min(_BATCHES, len(batches))):
        (inputs, _, weights), _ = batches.batch_of(step)
        real = weights.reshape(len(weights), -1).any(axis=1)
        for name, ids in inputs.items():
            if ids.ndim == 2:  # not what says which symbols belong together
                lengths.setdefault(name, []).append(np.count_nonzero(ids[real], axis=1))
    *others, counted = (max(1, round(float(np.mean(list(itertools.chain(*each)))))) for each in lengths.values())
    forward: int = zoo.cost(model, counted, *others).flops
    return 3 * forward / counted


def device_kind() -> str:
    """Returns what the driver calls the first device."""
    if keras.backend.backend() == "jax":
        import jax

        return str(jax.devices()[0].device_kind)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        for device in tf.config.list_physical_devices("GPU")[:1]:
            return str(tf.config.experimental.get_device_details(device).get("device_name", ""))
    return ""
