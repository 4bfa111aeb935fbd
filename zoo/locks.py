"""One writer at a time."""

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
    """Keeps other processes out of the block by a lock on a file, which is made.

    The lock ends with the process, however that ends. A system without locks has no such protection.

    Raises:
        InputError: With the message `busy`, if another process holds the lock.
    """
    with contextlib.ExitStack() as stack:
        if fcntl is not None:
            # A finished run may be where nothing can be written, and some file systems have no locks.
            with contextlib.suppress(OSError):
                file = stack.enter_context(lock.open("ab"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise InputError(busy) from None
        yield
