"""Peak operations per second of accelerators, and the rate of training at the peak."""

import itertools
from typing import Any

import keras
import numpy as np

import zoo
from training.data.batching import Batches
from training.hardware.choice import Hardware

PEAKS = {"a100": 312e12, "h100": 989e12, "h200": 989e12, "tpu-v5e": 197e12, "tpu-v5p": 459e12}
"""Operations per second of a device, dense, in bfloat16, as specified by its maker; see `benchmarks.scaling`."""

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
"""Their names in drivers. Others of the same series, such as the H100 for PCIe, have other peaks."""


def peak_of(kind: str) -> float | None:
    """Returns the peak operations per second of a device by its name in the driver, or `None` if it is unknown."""
    return PEAKS.get(_KINDS.get(kind, ""))


_BATCHES = 16
"""Number of batches from which the mean lengths are estimated."""


def tokens_per_second_at_peak(model: keras.Model, batches: Batches, hardware: Hardware) -> float | None:
    """Returns the number of tokens per second that a run would train on at the peak of its devices.

    The share of it that a run reaches is its model FLOP utilisation (Chowdhery et al. 2022, appendix B): the operations
    of the model for real tokens, forward and twice as many backward, divided by the peak. Padding and recomputed
    activations do not count.

    Returns:
        The rate; `None` if the peak is unknown, as for processors, or is for another precision.
    """
    if "float16" not in hardware.precision or (peak := peak_of(device_kind())) is None:
        return None
    return max(1, len(hardware.devices)) * peak / operations_per_token(model, batches)


def operations_per_token(model: keras.Model, batches: Batches) -> float:
    """Returns the additions and multiplications of training per token: three times those of the forward pass.

    They are computed for examples whose sides have the mean lengths of the first batches.
    """
    lengths: dict[str, list[Any]] = {}
    for step in range(min(_BATCHES, len(batches))):
        (inputs, _, weights), _ = batches.batch_of(step)
        real = weights.reshape(len(weights), -1).any(axis=1)
        for name, ids in inputs.items():
            if ids.ndim == 2:  # not the alignment
                lengths.setdefault(name, []).append(np.count_nonzero(ids[real], axis=1))
    *others, counted = (max(1, round(float(np.mean(list(itertools.chain(*rows)))))) for rows in lengths.values())
    forward: int = zoo.cost(model, counted, *others).flops
    return 3 * forward / counted


def device_kind() -> str:
    """Returns the name of the first device in its driver."""
    if keras.backend.backend() == "jax":
        import jax

        return str(jax.devices()[0].device_kind)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        for device in tf.config.list_physical_devices("GPU")[:1]:
            return str(tf.config.experimental.get_device_details(device).get("device_name", ""))
    return ""
