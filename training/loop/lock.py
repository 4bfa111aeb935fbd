"""Ensures that a work directory has one run, and one writer at a time."""

import contextlib
from collections.abc import Iterator

from zoo.errors import InputError
from zoo.runtime.locks import exclusive
from zoo.workdir import WorkDir


def check_vacant(workdir: WorkDir) -> None:
    """Raises InputError if a work directory already contains a run."""
    if workdir.config.exists():
        raise InputError(
            f"{workdir.path} already contains a run; add --resume to resume it, or choose another --workdir."
        )


@contextlib.contextmanager
def locked(workdir: WorkDir) -> Iterator[None]:
    """Makes a work directory and keeps other processes from training into it during the block.

    The lock is released when the process ends in any way. On systems without locks, there is no protection.

    Raises:
        InputError: If the directory or a folder in it cannot be made, or another process trains into it.
    """
    try:
        workdir.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{workdir.path} cannot be a work directory ({error.strerror}).") from error
    for folder in workdir.folders:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file, but a run needs a folder of that name. Move it away.")
    busy = f"Another process is training into {workdir.path}. Wait until it ends, or end it."
    with exclusive(workdir.lock, busy):
        yield
