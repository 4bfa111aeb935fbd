"""The processor time that a fast test may take."""

import contextlib
import functools
import resource
import time
from collections.abc import Iterator

import pytest

LIMIT = 8.0  # seconds on the reference machine, on which `_count` takes `REFERENCE`
REFERENCE = 0.115
ROOM = 2.5  # other processes share caches and memory, and TensorFlow slows down more than counting where these are slow


def _used() -> float:
    """Returns the processor seconds of this process and of those that it has waited for."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _count() -> float:
    begun, number = time.process_time(), 0
    while number < 3_000_000:
        number += 1
    return time.process_time() - begun


@functools.cache
def slowness() -> float:
    """Returns by how much this machine is slower than the one whose times are the limits, at least 1."""
    return max(1.0, min(_count() for _ in range(3)) / REFERENCE)


def allowed() -> float:
    """Returns the processor seconds that a fast test may take on this machine, more where the machine is slower."""
    return LIMIT * ROOM * slowness()


@contextlib.contextmanager
def limited(item: pytest.Item | None) -> Iterator[None]:
    """Fails if the block took too much processor time; `None` is a test without a limit."""
    begun = _used()
    yield
    if item is not None and (used := _used() - begun) > allowed():
        pytest.fail(
            f"{item.nodeid} took {used:.1f} s of processor time, and a fast test may take {allowed():.1f} s here "
            f"({LIMIT} s on the reference machine): make it smaller, or mark it `nightly`."
        )
