"""Reads data files: checks that folders are complete, and reads lines, also of compressed files."""

import codecs
import contextlib
import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from zoo.errors import InputError


def check_folder(directory: Path, names: Sequence[str], spec: str, form: str, needs: str) -> None:
    """Raises InputError if a folder or one of its files is missing, so that a run cannot end in a missing test set.

    The SPEC, its `form` and the files that it `needs` are for the messages.
    """
    if not directory.is_dir():
        raise InputError(f"{directory}: no such folder. Received: {spec!r}; expected {form}.")
    for name in names:
        if not stored(directory / name).is_file():
            raise InputError(f"{directory / name}: no such file. {spec!r} needs {needs}.")


def folder_of(spec: str, form: str) -> Path:
    """Returns the folder of a SPEC `KIND:DIR`; raises InputError if DIR is missing."""
    directory = spec.partition(":")[2]
    if not directory:
        raise InputError(f"Malformed data SPEC {spec!r}; expected {form}.")
    return Path(directory)


def read_lines(path: Path) -> list[str]:
    r"""Reads the lines of a UTF-8 file.

    Lines end at `\n` alone, as `wc -l` counts them. `str.splitlines` would also split at U+2028, form feeds and the
    like, and break the pairing of lines. A `\r` before the `\n` and a byte-order mark at the start of the file are
    removed.

    Raises:
        InputError: The file is missing, empty, or not UTF-8; the message contains the line.
    """
    path = stored(path)
    with opened(path) as file:
        data = file.read()
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data:
        raise InputError(f"{path}:1: empty file; a split needs at least one line.")
    try:
        return lines_of(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise not_utf8(path, data.count(b"\n", 0, error.start) + 1, data[error.start]) from error


def not_utf8(path: object, line: int, byte: int) -> InputError:
    """Returns the error for an invalid byte in a line of a UTF-8 file."""
    return InputError(f"{path}:{line}: invalid UTF-8 (byte 0x{byte:02x}). Convert the file to UTF-8.")


def stored(path: Path) -> Path:
    """Returns the path of a file, or of its compressed version with `.gz` or `.zst` at the end of the name."""
    packed = (path.with_name(f"{path.name}{suffix}") for suffix in (".gz", ".zst"))
    return path if path.exists() else next((candidate for candidate in packed if candidate.is_file()), path)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file for reading, decompressed if its name ends in `.gz` or `.zst`.

    Raises:
        InputError: It cannot be read, or is damaged or truncated.
    """
    try:
        with path.open("rb") as file:
            if path.suffix == ".gz":
                with gzip.open(file) as unpacked:
                    yield unpacked  # type: ignore[misc]
            elif path.suffix == ".zst":
                yield _Unpacked(file)  # type: ignore[misc]
            else:
                yield file
    except (EOFError, zlib.error, gzip.BadGzipFile, _Damaged) as error:
        raise InputError(f"{path}: damaged or truncated ({error}).") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error


class _Damaged(Exception):
    """A compressed file is damaged."""


class _Unpacked:
    """Reads a file of Zstandard frames; unlike the library's own reader, it detects a truncated last frame."""

    _PIECE = 1 << 18

    def __init__(self, file: IO[bytes]):
        import zstandard  # here, so that the command can name the extra that installs it

        self._file, self._error = file, zstandard.ZstdError
        self._begin = zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = None
        self._waiting, self._ready = b"", bytearray()

    def read(self, size: int = -1) -> bytes:
        while (size < 0 or len(self._ready) < size) and self._unpack():
            pass
        taken = bytes(self._ready) if size < 0 else bytes(self._ready[:size])
        del self._ready[: len(taken)]
        return taken

    def _unpack(self) -> bool:
        """Decompresses the next piece; returns whether there was one."""
        piece = self._waiting or self._file.read(self._PIECE)
        if not piece:
            if self._frame is not None:
                raise _Damaged("it ends within a frame")
            return False
        self._frame = self._frame or self._begin()
        try:
            self._ready += self._frame.decompress(piece)
        except self._error as error:
            raise _Damaged(str(error)) from error
        self._waiting = self._frame.unused_data if self._frame.eof else b""
        if self._frame.eof:
            self._frame = None
        return True


def lines_of(text: str) -> list[str]:
    r"""Returns the lines of a text; a `"\n"` at its end does not begin another line."""
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
