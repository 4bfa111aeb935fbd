"""Frees, between files of tests, the memory that TensorFlow and the C library keep as long as a process lasts."""

import ctypes
import gc
import sys
from pathlib import Path

GROWTH = 40 * 2**20  # bytes by which a process may grow before it is searched, which takes some tenths of a second
_PAGE = 4096
_before = 0


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * _PAGE


def give_back() -> None:
    """Frees the graphs and kernels of functions that no test uses any more, if this process has grown.

    TensorFlow registers the gradient of each `tf.custom_gradient` that it traces, under a new name each time and for
    ever, and with it the whole graph: some 40 MB for each training of a tiny model. Its eager context caches a kernel
    for each signature of an operation.
    """
    global _before
    if not sys.platform.startswith("linux") or _resident() < _before + GROWTH:
        return
    if (module := sys.modules.get("tensorflow.python.framework.ops")) is not None:
        registered = module.gradient_registry._registry
        for name in [name for name in registered if name.startswith("CustomGradient-")]:
            del registered[name]
    gc.collect()
    gc.freeze()  # what is left lasts; to search it after each file took 20 s
    if (module := sys.modules.get("tensorflow.python.eager.context")) is not None:
        module.context().clear_kernel_cache()
    ctypes.CDLL(None).malloc_trim(0)
    _before = _resident()
