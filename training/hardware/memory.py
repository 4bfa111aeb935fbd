"""The C library's memory."""

import ctypes
import sys

# Parameters of glibc's mallopt, and the largest values that it takes or that make a difference.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_AT_THE_TOP, _MAPPED_FROM = 1 << 30, 32 << 20


def keep_freed_memory() -> None:
    """Has the C library keep freed blocks below 32 MiB for the next ones, where it is glibc.

    On Python 3.11 and later TensorFlow has it give each block from 128 KiB on back to the system, from the making of
    the first dataset of a generator on. TensorFlow keeps blocks from 256 KiB on itself; those in between, which many
    tensors of a step are, are then mapped and filled with zeros by the system each time: a seventh of a step, where a
    `transformer_tiny` reads sentences.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _MAPPED_FROM)
        mallopt(_TRIM_THRESHOLD, _KEPT_AT_THE_TOP)
