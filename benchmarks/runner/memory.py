"""Resident memory of this process, its peak, and its growth during a function."""

import contextlib
import ctypes
import gc
import resource
from collections.abc import Callable
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def extra_memory(function: Callable[[], object]) -> int:
    """Returns by how many bytes the process grows, at most, while `function` runs.

    Memory that the process has freed is returned to the system first; otherwise `function` could reuse it without
    growth.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)
    reset_peak()
    before = resident_memory()
    function()
    return max(0, peak_memory() - before)


def reset_peak() -> None:
    """Resets the peak, if the system can."""
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5", encoding="ascii")  # "reset the peak resident set size", see proc(5)


def resident_memory() -> int:
    """Returns the resident bytes of this process."""
    return _field("VmRSS") if _STATUS.exists() else peak_memory()


def peak_memory() -> int:
    """Returns the largest number of resident bytes of this process since the last reset."""
    if _STATUS.exists():
        return _field("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _field(name: str) -> int:
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)
