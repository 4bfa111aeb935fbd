"""Access to a work directory during a training: one run, one process that writes."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from training.hardware.processes import Processes
from zoo.errors import InputError
from zoo.runtime.locks import exclusive
from zoo.workdir import ReadOnlyWorkDir, WorkDir


@contextlib.contextmanager
def only_chief_writes(workdir: WorkDir, processes: Processes) -> Iterator[WorkDir]:
    """Yields the work directory; only the chief writes files, and logs to standard error during the block."""
    if processes.is_chief:
        yield workdir
        return
    with tempfile.TemporaryDirectory() as discarded, open(os.devnull, "w") as nowhere:
        with contextlib.redirect_stderr(nowhere):
            yield ReadOnlyWorkDir(workdir.path, Path(discarded))


@contextlib.contextmanager
def locked(workdir: WorkDir) -> Iterator[None]:
    """Makes a work directory and prevents other processes from training into it during the block.

    The lock is released when the process ends in any way. On systems without locks, there is no protection. A process
    that does not write into the directory takes no lock.

    Raises:
        InputError: If the directory or a folder in it cannot be made, or another process trains into it.
    """
    if not workdir.writes:
        yield
        return
    try:
        workdir.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{workdir.path} cannot be a work directory ({error.strerror}).") from error
    for folder in workdir.folders:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file, but a run requires a folder of that name. Move it away.")
    busy = f"Another process is training into {workdir.path}. Wait until it ends, or end it."
    with exclusive(workdir.lock, busy):
        yield
