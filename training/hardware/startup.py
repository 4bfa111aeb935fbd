"""Prepares the process of a command: the C library's memory allocator, and the backend for decoding."""

import ctypes
import sys
from collections.abc import Mapping

from zoo.runtime.startup import start_backend, without_onednn

# Parameters of glibc's mallopt, and the largest values that it accepts or that have an effect.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_AT_THE_TOP, _MAPPED_FROM = 1 << 30, 32 << 20
_RETURNED_FROM = 1 << 20


def keep_freed_memory() -> None:
    """Makes glibc keep freed blocks of less than 32 MiB for reuse.

    On Python 3.11 and later, once the first dataset of a generator is made, TensorFlow makes glibc return each block of
    128 KiB or more to the system. TensorFlow itself keeps blocks of 256 KiB or more. The system then maps the blocks in
    between, among them many tensors of a step, and fills them with zeros each time. That takes a seventh of a step of
    `transformer_tiny` on sentences.
    """
    _set({_MMAP_THRESHOLD: _MAPPED_FROM, _TRIM_THRESHOLD: _KEPT_AT_THE_TOP})


def return_freed_memory() -> None:
    """Makes glibc return freed blocks of a MiB or more to the system.

    Otherwise it keeps those of up to 32 MiB, once the first of them was freed, which adds up to hundreds of megabytes
    when weights are read tensor by tensor.
    """
    _set({_MMAP_THRESHOLD: _RETURNED_FROM, _TRIM_THRESHOLD: _RETURNED_FROM})


def _set(parameters: Mapping[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for parameter, value in parameters.items():
            mallopt(parameter, value)


def start_decoding() -> None:
    """Starts the backend for a command that mostly decodes, several batches in parallel."""
    without_onednn()
    start_backend()
    from training.hardware.cores import use_cores
    from zoo.runtime.cores import computing_cores

    use_cores(computing_cores())
