"""Chooses the precision and the compiler that are fastest on a machine."""

import contextlib
from collections.abc import Iterator

import keras

from zoo.runtime.cores import has_accelerator, processor

_ACCELERATORS = ("gpu", "tpu", "cuda")
_WITH_BFLOAT16 = ("amx_bf16", "avx512_bf16")

AUTO = MEASURED = "auto"
"""The value of a precision that `training.loop.precision` still has to choose by measurement."""


def _has_accelerator() -> bool:
    if keras.backend.backend() == "tensorflow":
        return has_accelerator()
    if keras.backend.backend() == "torch":
        import torch

        return bool(torch.cuda.is_available())
    return any(device.partition(":")[0] in _ACCELERATORS for device in keras.distribution.list_devices())


def dtype_policy(precision: str) -> str:
    """Returns the Keras dtype policy for a `training.precision` setting, `"auto"` or a policy.

    `"auto"` is bfloat16 on accelerators and float32 on processors. There, XLA's code gains nothing from bfloat16, and
    TensorFlow's only with the instructions of AMX or AVX-512 for it. With these, the faster one, by up to a third,
    depends on the model and the processor: `MEASURED`.
    """
    if precision != AUTO:
        return precision
    if _has_accelerator():
        return "mixed_bfloat16"
    flags = processor("flags").split() if keras.backend.backend() == "tensorflow" else []
    return MEASURED if any(flag in flags for flag in _WITH_BFLOAT16) else "float32"


def use_xla(jit: str) -> bool:
    """Returns whether XLA compiles the training step, for a `training.jit` setting: `"on"`, `"off"` or `"auto"`.

    JAX always compiles. TensorFlow does not by default: XLA would take a second or more to compile each new shape of a
    batch, and does not support some models, such as `rnnsearch`.
    """
    return keras.backend.backend() == "jax" if jit == "auto" else jit == "on"


@contextlib.contextmanager
def without_rewriting() -> Iterator[None]:
    """Disables TensorFlow's graph rewriting (Grappler) on processors, during the block.

    Rewriting a training step takes seconds before the first step and does not make the others faster.
    """
    if keras.backend.backend() != "tensorflow" or _has_accelerator():
        yield
        return
    import tensorflow as tf

    is_disabled = tf.config.optimizer.get_experimental_options().get("disable_meta_optimizer", False)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": is_disabled})
