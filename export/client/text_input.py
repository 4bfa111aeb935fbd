"""Texts from standard input, in batches, as soon as they arrive."""

import os
import select
import sys
from collections.abc import Iterator
from typing import Any

from export.client.api import BATCH_SIZE, batches
from zoo.cli import is_closed
from zoo.errors import InputError

_CHUNK = 1 << 16  # bytes read at once


def read_batches(size: int = BATCH_SIZE) -> Iterator[dict[str, list[bytes]] | None]:
    """Yields the lines of standard input, `size` at once, as soon as they arrive, and `None` before it has to wait.

    Only a line feed ends a line, and a carriage return before it is dropped.

    Raises:
        InputError: Standard input is closed.
    """
    if is_closed(sys.stdin):
        raise InputError("There are no texts: none among the arguments, and standard input is closed.")
    # Unbuffered: `select` does not see what is in a buffer, and a line that a person enters would not be answered at
    # once.
    stream = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
    lines: list[bytes] = []
    unfinished = b""
    while True:
        if not _is_ready(stream):
            yield from batches(lines, size)
            yield None
            lines = []
        chunk = stream.read(_CHUNK)
        *ended, unfinished = (unfinished + chunk).split(b"\n")
        lines += [line.removesuffix(b"\r") for line in ended]
        if not chunk:
            yield from batches([*lines, unfinished] if unfinished else lines, size)
            return
        full = len(lines) // size * size
        yield from batches(lines[:full], size)
        del lines[:full]


def read_texts() -> list[str]:
    """Returns all lines of standard input; what is not UTF-8 in them is U+FFFD.

    Raises:
        InputError: Standard input is closed.
    """
    return [line.decode("utf-8", "replace") for batch in read_batches() if batch for line in batch["text"]]


def _is_ready(stream: Any) -> bool:
    """Returns whether a read from the stream returns at once."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError):  # no file of the operating system, or one that cannot be asked
        return True


def input_size() -> int | None:
    """Returns the bytes of standard input, where that is a file."""
    if is_closed(sys.stdin):
        return None
    try:
        return os.fstat(sys.stdin.fileno()).st_size or None
    except (OSError, ValueError):
        return None
