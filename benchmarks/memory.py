"""Memory as the operating system accounts it: a process's peak, and by how much it grows while it does something."""

import contextlib
import ctypes
import gc
import resource
from collections.abc import Callable
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def extra_memory(function: Callable[[], object]) -> int:
    """Returns how many bytes the process grows by, at most, while `function` runs.

    Memory that the process has freed but kept is given back first, so that `function` cannot take it unseen. Nothing
    that another process does counts.
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
    """Forgets the former peak; where the system cannot, the peak is that since the process began."""
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5", encoding="ascii")  # "reset the peak resident set size", see proc(5)


def resident_memory() -> int:
    """Returns the bytes that this process has in memory."""
    return _field("VmRSS") if _STATUS.exists() else peak_memory()


def peak_memory() -> int:
    """Returns the largest number of bytes that this process ever had in memory."""
    if _STATUS.exists():
        return _field("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _field(name: str) -> int:
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)
