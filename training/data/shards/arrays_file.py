"""Files of named arrays of unsigned integers, written piece by piece and mapped into memory, without pickle.

All numbers are little-endian. A file begins with a header:

    bytes 0-7     the letters ZOOARRAY
    bytes 8-11    the version of this layout, 1
    bytes 12-15   the number A of arrays
    then, A times, 64 bytes:
        40 bytes  the name, ASCII, padded with zeros
        8 bytes   bytes of a value: 1, 2, 4 or 8
        8 bytes   position of the first value in the file, a multiple of 64
        8 bytes   number of values

The arrays follow in the order of the header, each at the next multiple of 64 bytes; the file ends with the last value.
"""

import hashlib
import struct
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from zoo.errors import InputError
from zoo.workdir import checksum, replacing

Array = NDArray[Any]

_MAGIC, _VERSION = b"ZOOARRAY", 1
_HEADER, _ENTRY = struct.Struct("<8sII"), struct.Struct("<40sQQQ")
_ALIGNMENT = 64
_BLOCK = 1 << 20


class ArraysWriter:
    """Writes a file of arrays atomically, when it is finished.

    Until then the arrays grow on the disk, so that the memory does not depend on their sizes.

    Args:
        path: The file.
        widths: Bytes of a value of each array, by name: 1, 2, 4 or 8.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> path = Path(tempfile.mkdtemp()) / "example.shard"
        >>> with ArraysWriter(path, {"ids": 2}) as writer:
        ...     writer.append("ids", np.array([7, 8]))
        ...     writer.append("ids", np.array([9]))
        ...     digest = writer.finish()
        >>> open_arrays(path)["ids"].tolist()
        [7, 8, 9]
    """

    def __init__(self, path: Path, widths: Mapping[str, int]):
        self.path, self._widths = path, dict(widths)
        self._stack = ExitStack()
        self._files: dict[str, IO[bytes]] = {}

    def __enter__(self) -> Self:
        for name in self._widths:
            # In the folder of the file, whose disk must have the space anyway.
            file = tempfile.TemporaryFile(dir=self.path.parent)
            self._files[name] = self._stack.enter_context(file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def append(self, name: str, values: Array) -> None:
        """Appends values to an array; they must fit into its width."""
        self._files[name].write(values.astype(f"<u{self._widths[name]}").tobytes())

    def finish(self) -> str:
        """Writes the file and returns its SHA-256 sum."""
        entries, position = [], _HEADER.size + _ENTRY.size * len(self._files)
        for name, file in self._files.items():
            position = -(-position // _ALIGNMENT) * _ALIGNMENT
            entries.append((name, self._widths[name], position, file.tell() // self._widths[name]))
            position += file.tell()
        digest = hashlib.sha256()
        with replacing(self.path) as temporary, temporary.open("wb") as output:

            def write(data: bytes) -> None:
                output.write(data)
                digest.update(data)

            write(_HEADER.pack(_MAGIC, _VERSION, len(entries)))
            for name, *numbers in entries:
                write(_ENTRY.pack(name.encode("ascii"), *numbers))
            for (_, _, position, _), file in zip(entries, self._files.values(), strict=True):
                write(bytes(position - output.tell()))
                file.seek(0)
                while block := file.read(_BLOCK):
                    write(block)
        return digest.hexdigest()


def open_arrays(path: Path, sha256: str | None = None) -> dict[str, Array]:
    """Returns the arrays of a file by name, mapped into memory and read-only.

    Args:
        path: The file.
        sha256: The SHA-256 sum that it must have; `None` to check its layout and size alone.

    Raises:
        InputError: If it cannot be read or is damaged; the message contains its path.
    """
    try:
        with path.open("rb") as file:
            entries = _read_header(file, path)
        if sha256 is not None and checksum(path) != sha256:
            raise InputError(f"{path} is damaged: its SHA-256 sum differs from that in the manifest.")
        return {name: _mapped(path, *entry) for name, entry in entries.items()}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error


def _read_header(file: IO[bytes], path: Path) -> dict[str, tuple[int, int, int]]:
    """Returns width, position and number of values of each array."""
    size = path.stat().st_size
    head = file.read(_HEADER.size)
    if len(head) < _HEADER.size or not head.startswith(_MAGIC):
        raise InputError(f"{path} is not a file of token shards: it does not begin with {_MAGIC.decode()}.")
    _, version, count = _HEADER.unpack(head)
    if version != _VERSION:
        raise InputError(f"{path} has version {version} of its layout; this program reads version {_VERSION}.")
    entries, end = {}, 0
    for _ in range(count):
        entry = file.read(_ENTRY.size)
        if len(entry) < _ENTRY.size:
            raise InputError(f"{path} is damaged: it ends within its header.")
        name, width, position, values = _ENTRY.unpack(entry)
        if width not in (1, 2, 4, 8) or position % _ALIGNMENT or position < end:
            raise InputError(f"{path} is damaged: its header is invalid.")
        entries[name.rstrip(b"\0").decode("ascii", "replace")] = (width, position, values)
        end = position + width * values
    if end > size or (size > end > 0):
        raise InputError(f"{path} is damaged: it has {size:,} bytes, but {end:,} by its header.")
    return entries


def _mapped(path: Path, width: int, position: int, count: int) -> Array:
    if not count:  # an empty file cannot be mapped
        return np.zeros(0, f"<u{width}")
    # Slices of `np.memmap` are slower than those of a plain array.
    return np.asarray(np.memmap(path, f"<u{width}", "r", position, (count,)))
