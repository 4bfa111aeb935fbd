"""Small trained models that come with the package: work directories, checked against their SHA-256 sums.

They are made by `python -m training.presets`.
"""

import json
import os
from pathlib import Path

from zoo.errors import InputError, unknown_name
from zoo.workdir import CHECKSUMS, checksum

PREFIX = "preset:"
FOLDER = Path(__file__).parent


def list_presets() -> list[str]:
    """Returns the sorted names of the presets; `zoo.load("preset:NAME")` loads one."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CHECKSUMS}"))


def checksums(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 sum of each file in a folder by its path in it, except the file of the sums itself."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    return {path.relative_to(folder).as_posix(): checksum(path) for path in files}


def preset_path(name: str) -> Path:
    """Returns the work directory of a preset, after checking that its files are unchanged.

    Raises:
        InputError: There is no such preset (the close names are given), or a file was changed or is missing.
    """
    if name not in list_presets():
        raise unknown_name("preset", name, list_presets())
    folder = FOLDER / name
    expected = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
    actual = checksums(folder)
    damaged = sorted(file for file in expected if actual.get(file) != expected[file])
    if damaged:
        raise InputError(f"The preset {name!r} is damaged: {', '.join(damaged)}. Install the package again.")
    return folder


def workdir_path(path: str | os.PathLike[str]) -> Path:
    """Returns the path of a work directory, which may be named as `preset:NAME`.

    Raises:
        InputError: There is no such preset, or a file of it was changed or is missing.
    """
    if isinstance(path, str) and path.startswith(PREFIX):
        return preset_path(path.removeprefix(PREFIX))
    return Path(path)
