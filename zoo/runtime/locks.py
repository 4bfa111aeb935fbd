"""A lock for exclusive access by one process."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from zoo.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def exclusive(lock: Path, busy: str) -> Iterator[None]:
    """Locks a file, which is created, during the block.

    The lock is released when the process ends, even if it is killed. On systems without locks, this does nothing.

    Raises:
        InputError: With the message `busy`, if another process holds the lock.
    """
    with contextlib.ExitStack() as stack:
        if fcntl is not None:
            # The folder of a finished run may be read-only, and some file systems have no locks.
            with contextlib.suppress(OSError):
                file = stack.enter_context(lock.open("ab"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise InputError(busy) from None
        yield
