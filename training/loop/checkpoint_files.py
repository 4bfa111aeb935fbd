"""The files of checkpoints in a work directory, which are found without Keras."""

import re
import sys
import zipfile
from pathlib import Path

from zoo.errors import InputError

_NAME = re.compile(r"step_(\d+)\.npz")


def list_checkpoints(folder: Path) -> list[Path]:
    """Returns the checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("step_*.npz") if _NAME.fullmatch(path.name))


def checkpoint_path(folder: Path, step: int) -> Path:
    """Returns where the checkpoint after a step is written."""
    return folder / f"step_{step:08d}.npz"


def step_of(path: Path) -> int:
    """Returns the step after which a checkpoint was written."""
    return int(path.stem.removeprefix("step_"))


def last_step(folder: Path) -> int:
    """Returns the step of the last checkpoint that is whole; 0 without one."""
    return max((step_of(path) for path in list_checkpoints(folder) if zipfile.is_zipfile(path)), default=0)


def set_damaged_aside(folder: Path) -> None:
    """Renames checkpoints that are cut off, such as after a crash of the machine, and says so on standard error.

    So a run goes on from the last one that is whole.

    Raises:
        InputError: If all of them are damaged.
    """
    checkpoints = list_checkpoints(folder)
    damaged = [path for path in checkpoints if not zipfile.is_zipfile(path)]
    if checkpoints and damaged == checkpoints:
        raise InputError(f"All checkpoints in {folder} are damaged. Without these files, --resume begins the run anew.")
    for path in damaged:
        renamed = path.rename(path.with_name(f"{path.name}.damaged"))
        print(f"{path.name} is damaged, and kept as {renamed.name}", file=sys.stderr)
