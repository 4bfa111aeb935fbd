"""The files that data are read from: folders that must hold certain files, and their lines."""

import codecs
from collections.abc import Sequence
from pathlib import Path

from zoo.errors import InputError


def check_folder(directory: Path, names: Sequence[str], spec: str, form: str, needs: str) -> None:
    """Checks that a folder and its files exist, so that a run cannot end in a missing test set.

    The SPEC, its `form` and what it `needs` are for the messages. Raises InputError if something is missing.
    """
    if not directory.is_dir():
        raise InputError(f"{directory}: no such folder. Received: {spec!r}; expected {form}.")
    for name in names:
        if not (directory / name).is_file():
            raise InputError(f"{directory / name}: no such file. {spec!r} needs {needs}.")


def folder_of(spec: str, form: str) -> Path:
    """Returns the folder of a SPEC `KIND:DIR`; raises InputError if it names none."""
    directory = spec.partition(":")[2]
    if not directory:
        raise InputError(f"Malformed data SPEC {spec!r}; expected {form}.")
    return Path(directory)


def read_lines(path: Path) -> list[str]:
    r"""Reads the lines of a UTF-8 file.

    Lines end at `\n` alone, as `wc -l` counts them: U+2028, form feeds and the like stay inside a line,
    where `str.splitlines` would break the pairing. A `\r` before the `\n` and a byte-order mark at the
    start of the file are left out.

    Raises:
        InputError: The file is missing, empty, or not UTF-8; the message names the line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data:
        raise InputError(f"{path}:1: empty file; a split needs at least one line.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise InputError(f"{path}:{number}: invalid UTF-8 (byte 0x{byte:02x}). Convert the file to UTF-8.") from error
    return lines_of(text)


def lines_of(text: str) -> list[str]:
    r"""Returns the lines of a text; a `"\n"` at its end begins no further one."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
