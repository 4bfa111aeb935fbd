"""Lists and removes the files of checkpoints in a work directory, without Keras."""

import re
import shutil
import sys
import zipfile
from pathlib import Path

from zoo.errors import InputError

NPZ, ORBAX = ".npz", ".orbax"
"""The suffixes of a file written by one process, and of a folder written by Orbax."""

_NAME = re.compile(rf"step_(\d+)({re.escape(NPZ)}|{re.escape(ORBAX)})")
# Orbax writes this file into a folder when it is complete.
_IN_ORBAX = "_CHECKPOINT_METADATA"


def list_checkpoints(folder: Path) -> list[Path]:
    """Returns the checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("step_*") if _NAME.fullmatch(path.name))


def checkpoint_path(folder: Path, step: int) -> Path:
    """Returns the path of the checkpoint after a step; that of a new `.npz` file if there is none."""
    path = folder / f"step_{step:08d}{NPZ}"
    other = path.with_suffix(ORBAX)
    return other if other.exists() and not path.exists() else path


def step_of(path: Path) -> int:
    """Returns the step after which a checkpoint was written."""
    return int(path.stem.removeprefix("step_"))


def is_whole(path: Path) -> bool:
    """Returns whether a checkpoint is complete."""
    return (path / _IN_ORBAX).is_file() if path.suffix == ORBAX else zipfile.is_zipfile(path)


def last_step(folder: Path) -> int:
    """Returns the step of the last complete checkpoint; 0 without one."""
    return max((step_of(path) for path in list_checkpoints(folder) if is_whole(path)), default=0)


def remove_checkpoint(path: Path) -> None:
    """Removes a checkpoint; a folder is renamed first, so that a half removed one is never listed."""
    if path.is_dir():
        path = path.rename(path.with_name(f".tmp-removed-{path.name}"))
        shutil.rmtree(path)
    else:
        path.unlink()


def set_damaged_aside(folder: Path) -> None:
    """Renames incomplete checkpoints, such as those after a crash of the machine, and reports them on standard error.

    A run is then resumed from the last complete one. Unfinished folders of Orbax and half removed ones are removed.

    Raises:
        InputError: If all of them are damaged.
    """
    for path in [*folder.glob("*.orbax-checkpoint-tmp*"), *folder.glob(".tmp-removed-*")]:
        shutil.rmtree(path, ignore_errors=True)
    checkpoints = list_checkpoints(folder)
    damaged = [path for path in checkpoints if not is_whole(path)]
    if checkpoints and damaged == checkpoints:
        raise InputError(f"All checkpoints in {folder} are damaged. Remove these files to restart the run by --resume.")
    for path in damaged:
        renamed = path.rename(path.with_name(f"{path.name}.damaged"))
        print(f"{path.name} is damaged; renamed to {renamed.name}", file=sys.stderr)
