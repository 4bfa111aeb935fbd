"""What TensorFlow holds on to for as long as a process lasts, given back between the files of tests."""

import gc
import sys
from pathlib import Path

GROWTH = 150 * 2**20  # bytes by which a process may grow before it looks for what can go: the search takes a second
_PAGE = 4096
_before = 0


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * _PAGE


def give_back() -> None:
    """Frees the graphs of functions that no test uses any more, if this process has grown much.

    TensorFlow registers the gradient of each `tf.custom_gradient` that it traces, under a new name each time and for
    ever, and with it the whole graph: some 40 MB for each training of a tiny model.
    """
    global _before
    if not sys.platform.startswith("linux") or _resident() < _before + GROWTH:
        return
    if (module := sys.modules.get("tensorflow.python.framework.ops")) is not None:
        registered = module.gradient_registry._registry
        for name in [name for name in registered if name.startswith("CustomGradient-")]:
            del registered[name]
    gc.collect()
    _before = _resident()
