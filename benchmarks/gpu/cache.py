"""The folder of compiled programs as one file, packed after a run and unpacked before the next one.

JAX writes a file for each compiled program, PyTorch many small ones, each library into its own folder. If the size
exceeds the limit, the files that were written first are packed, which are those of the programs that run first.
"""

import io
import os
import tarfile
from pathlib import Path

LIMIT = 16 * 2**20
_HEADER = 1024  # of a file in an archive, including padding


def pack(folder: Path, archive: Path, limit: int = LIMIT) -> tuple[int, int]:
    """Writes the files of a folder into an archive of at most `limit` bytes, in the order in which they were written.

    Returns:
        The number of packed files, and that of the others.
    """
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime)
    packed, others = io.BytesIO(), 0
    # JAX's files are compressed already, so that a higher level would take time for little gain.
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        for path in files:
            # An upper bound, with the header of the file and the end of the archive.
            if packed.tell() + _compressed_at_most(path) > limit:
                others += 1
                continue
            tar.add(path, path.relative_to(folder).as_posix())
            tar.fileobj.flush()  # type: ignore[union-attr]
    temporary = archive.with_suffix(".part")
    temporary.write_bytes(packed.getvalue())
    os.replace(temporary, archive)
    return len(files) - others, others


def unpack(archive: Path, folder: Path) -> int:
    """Extracts an archive into a folder, with the times of its files; returns their number."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
        return sum(member.isfile() for member in tar.getmembers())


def _compressed_at_most(path: Path) -> int:
    size = path.stat().st_size
    return size + size // 1000 + 20 * _HEADER
