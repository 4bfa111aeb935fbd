"""Reads lines of files of any size, some at a time, as bytes."""

import codecs
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

_PIECE = 1 << 20


class LineReader:
    r"""Reads a file line by line, many at once; lines end at `\n` alone.

    Args:
        file: The file, opened at its beginning; a byte-order mark there is skipped.

    Attributes:
        position: Offset of the next line in the decompressed file.
    """

    def __init__(self, file: IO[bytes]):
        self._file = file
        self._data = b""
        self._ends: NDArray[Any] = np.zeros(0, np.int64)
        self._at_end = False
        self.position = 0
        self._fill(1)
        if self._data.startswith(codecs.BOM_UTF8):
            self._drop(len(codecs.BOM_UTF8))

    def take(self, count: int, most_bytes: int) -> tuple[bytes, NDArray[Any]]:
        r"""Returns the next lines with their `\n`, and the offsets of each and of the end.

        Args:
            count: Largest number of lines.
            most_bytes: Largest number of bytes, unless the first line is longer.
        """
        self._fill(count, most_bytes)
        ends = self._ends[:count]
        if len(ends) > 1 and ends[-1] > most_bytes:
            ends = ends[: max(1, int(np.searchsorted(ends, most_bytes, side="right")))]
        size = int(ends[-1]) if len(ends) else 0
        lines, offsets = self._data[:size], np.concatenate([[0], ends])
        self._drop(size)
        return lines, offsets

    @property
    def is_at_end(self) -> bool:
        """Whether there are no more lines."""
        return not len(self._ends)

    def count_rest(self) -> int:
        """Reads the remaining lines and returns their number."""
        total = 0
        while len(offsets := self.take(1 << 16, _PIECE)[1]) > 1:
            total += len(offsets) - 1
        return total

    def _fill(self, count: int, most_bytes: int = 0) -> None:
        pieces, size, lines = [self._data], len(self._data), len(self._ends)
        while not self._at_end and (lines < 1 or (lines < count and size < most_bytes)):
            piece = self._file.read(_PIECE)
            self._at_end = not piece
            pieces.append(piece)
            size, lines = size + len(piece), lines + piece.count(b"\n")
        if len(pieces) > 1:
            self._data = b"".join(pieces)
            self._find_lines()

    def _drop(self, size: int) -> None:
        self._data = self._data[size:]
        self._ends = self._ends[self._ends > size] - size
        self.position += size

    def _find_lines(self) -> None:
        self._ends = np.flatnonzero(np.frombuffer(self._data, np.uint8) == ord("\n")) + 1
        if self._at_end and len(self._data) > (self._ends[-1] if len(self._ends) else 0):
            self._ends = np.append(self._ends, len(self._data))
