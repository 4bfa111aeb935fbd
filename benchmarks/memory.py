"""Memory as the operating system accounts it: a process's peak while it does something, less what it held before."""

import ctypes
import gc
import resource
from collections.abc import Callable
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def extra_memory(function: Callable[[], object]) -> int:
    """Returns how many bytes the process grows by, at most, while `function` runs.

    What `function` can take from memory that the process has freed and not given back is given back first. Nothing that
    another process does counts.

    Args:
        function: What to measure.
    """
    gc.collect()
    _give_back()
    _forget_peak()
    before = _resident()
    function()
    return max(0, _peak() - before)


def _give_back() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def _forget_peak() -> None:
    try:
        _CLEAR.write_text("5", encoding="ascii")  # "reset the peak resident set size", see proc(5)
    except OSError:
        pass  # the peak is then that since the process began


def _field(name: str) -> int:
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def _resident() -> int:
    return _field("VmRSS") if _STATUS.exists() else _peak()


def _peak() -> int:
    if _STATUS.exists():
        return _field("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
