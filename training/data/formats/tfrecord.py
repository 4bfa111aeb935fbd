"""Files of TFRecords, read without TensorFlow: each record between its length and checksums of both."""

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.errors import InputError

_POLYNOMIAL = 0x82F63B78  # CRC-32C, reversed
_ALL_ONES = 0xFFFFFFFF
_ROW = 256
_BYTES_AT_A_TIME = 1 << 20


def read_records(path: Path) -> Iterator[bytes]:
    """Yields the records of a file; raises InputError if it is damaged, or cannot be read."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            first = 0
            while batch := _next_records(file, size, path):
                _check(batch, path, first)
                first += len(batch)
                yield from (record for _, record, _ in batch)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error


def _next_records(file: Any, size: int, path: Path) -> list[tuple[bytes, bytes, bytes]]:
    """Returns the next records, each with the 12 bytes before and the 4 after it; those of about a megabyte."""
    batch: list[tuple[bytes, bytes, bytes]] = []
    start = file.tell()
    while file.tell() - start < _BYTES_AT_A_TIME and (head := file.read(12)):
        length = int.from_bytes(head[:8], "little")
        if file.tell() + length + 4 > size:
            raise InputError(f"{path}: the file ends within a record; it is damaged.")
        batch.append((head, file.read(length), file.read(4)))
    return batch


def _check(batch: Sequence[tuple[bytes, bytes, bytes]], path: Path, first: int) -> None:
    """Raises InputError for a record that its checksums do not fit; `first` is the number of the first record."""
    heads, records, tails = zip(*batch, strict=True)
    stored = [int.from_bytes(head[8:], "little") for head in heads], [int.from_bytes(tail, "little") for tail in tails]
    computed = masked_crc32c([head[:8] for head in heads]), masked_crc32c(records)
    wrong = (np.asarray(stored) != computed).any(axis=0)
    if wrong.any():
        number = first + int(wrong.argmax())
        raise InputError(f"{path}: record {number} does not fit its checksum; the file is damaged.")


def masked_crc32c(records: Sequence[bytes]) -> NDArray[np.uint32]:
    """Returns the checksum of each record, as TFRecord files hold it: CRC-32C, rotated, plus a constant.

    The checksum is linear over GF(2): that of a row of 256 bytes is the exclusive or of what each byte contributes in
    its place, which NumPy computes for all rows of all records at once; leading zeros contribute nothing.
    """
    padded = [record.rjust(max(-(-len(record) // _ROW), 1) * _ROW, b"\0") for record in records]
    rows = np.frombuffer(b"".join(padded), np.uint8).reshape(-1, _ROW)
    of_rows = np.zeros(len(rows), np.uint32)
    for place, contributions in enumerate(_contributions()):
        of_rows ^= contributions[rows[:, place]]
    ends = np.cumsum([len(record) // _ROW for record in padded])
    crcs = np.array(
        [_joined(of_rows[end - len(record) // _ROW : end]) for record, end in zip(padded, ends, strict=True)],
        np.uint32,
    )
    crcs ^= np.array([_after_zeros(len(record)) for record in records], np.uint32) ^ np.uint32(_ALL_ONES)
    return (crcs >> np.uint32(15) | crcs << np.uint32(17)) + np.uint32(0xA282EAD8)


def _joined(rows: NDArray[np.uint32]) -> int:
    """Returns the checksum of rows that follow each other."""
    crc, *others = rows.tolist()
    for row in others:
        crc = _shift(crc) ^ row
    return int(crc)


def _shift(crc: int) -> int:
    """Returns a checksum after another row of zeros."""
    first, second, third, fourth = _shifts()
    return first[crc & 255] ^ second[crc >> 8 & 255] ^ third[crc >> 16 & 255] ^ fourth[crc >> 24]


@functools.lru_cache(4096)
def _after_zeros(length: int) -> int:
    """Returns the checksum of zeros, which begins with all ones."""
    crc, table = _ALL_ONES, _contributions()[-1]
    for _ in range(length // _ROW):
        crc = _shift(crc)
    for _ in range(length % _ROW):
        crc = int(table[crc & 255]) ^ crc >> 8
    return crc


@functools.cache
def _contributions() -> NDArray[np.uint32]:
    """Returns what each byte in each place of a row contributes to the checksum of the row, [256, 256]."""
    table: NDArray[Any] = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = table >> 1 ^ (table & 1) * np.uint32(_POLYNOMIAL)
    places = [table]
    for _ in range(_ROW - 1):
        places.append(table[places[-1] & 255] ^ places[-1] >> 8)
    return np.array(places[::-1])


@functools.cache
def _shifts() -> list[list[int]]:
    """Returns what each byte of a checksum becomes after another row of zeros."""
    # A checksum is absorbed as the first bytes of what follows.
    return [contributions.tolist() for contributions in _contributions()[:4]]
