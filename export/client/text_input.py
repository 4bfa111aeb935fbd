"""Reads texts from standard input, in batches, as soon as they arrive."""

import os
import select
import sys
from collections.abc import Iterator
from typing import Any

from export.client.api import BATCH_SIZE, batches
from zoo.errors import InputError
from zoo.runtime.cli import is_closed

_CHUNK = 1 << 16  # bytes read at once


def read_batches(size: int = BATCH_SIZE) -> Iterator[dict[str, list[bytes]] | None]:
    """Yields batches of at most `size` lines of standard input as soon as they arrive, and `None` before each wait.

    Only a line feed ends a line, and a carriage return before it is dropped.

    Raises:
        InputError: Standard input is closed.
    """
    if is_closed(sys.stdin):
        raise InputError("There are no texts: there are no arguments, and standard input is closed.")
    # The stream is unbuffered, because `select` ignores buffered data, which would delay the output for a typed line.
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
    """Returns all lines of standard input; invalid UTF-8 is replaced by U+FFFD.

    Raises:
        InputError: Standard input is closed.
    """
    return [line.decode("utf-8", "replace") for batch in read_batches() if batch for line in batch["text"]]


def _is_ready(stream: Any) -> bool:
    """Returns whether a read of the stream returns without waiting."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError):  # not a file of the operating system, or one that `select` does not support
        return True


def input_size() -> int | None:
    """Returns the size of standard input in bytes if it is a file."""
    if is_closed(sys.stdin):
        return None
    try:
        return os.fstat(sys.stdin.fileno()).st_size or None
    except (OSError, ValueError):
        return None
