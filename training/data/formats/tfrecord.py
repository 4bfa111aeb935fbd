"""Reads TFRecord files without TensorFlow: a record has its length before it, and both have checksums."""

from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from zoo.errors import InputError


def read_records(path: Path) -> Iterator[bytes]:
    """Yields the records of a file; raises InputError if it is damaged, or cannot be read."""
    try:
        with path.open("rb") as file:
            size, number = path.stat().st_size, 0
            while head := file.read(12):
                length = int.from_bytes(head[:8], "little")
                if file.tell() + length + 4 > size:
                    raise InputError(f"{path}: the file ends within a record; it is damaged.")
                record, tail = file.read(length), file.read(4)
                if not (_fits(head[:8], head[8:]) and _fits(record, tail)):
                    raise InputError(f"{path}: record {number} does not match its checksum; the file is damaged.")
                yield record
                number += 1
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error


def _fits(content: bytes, stored: bytes) -> bool:
    """Returns whether bytes match the stored checksum: CRC-32C, rotated by 15 bits, plus a constant."""
    crc: int = google_crc32c.value(content)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return masked == int.from_bytes(stored, "little")
