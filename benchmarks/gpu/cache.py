"""The folder of what was compiled as one file that travels: packed after a run, unpacked before the next one.

JAX keeps each program that it compiled in a file of its own, PyTorch in many small ones. A folder for each library
makes it one cache; of more than has room, what was written first stays, which are the programs that are needed first.
"""

import io
import os
import tarfile
from pathlib import Path

LIMIT = 16 * 2**20
_HEADER = 1024  # of a file in an archive, rounded up with its padding


def pack(folder: Path, archive: Path, limit: int = LIMIT) -> tuple[int, int]:
    """Writes the files of a folder into an archive of at most `limit` bytes, those that were written first.

    Returns:
        How many files are in the archive, and how many had no room.
    """
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime)
    packed, lost = io.BytesIO(), 0
    # What JAX writes is compressed; so little is gained by more effort that the time is worth more.
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        for path in files:
            # A file grows by no more than its header when it is compressed; the end of the archive takes a part, too.
            if packed.tell() + _compressed_at_most(path) > limit:
                lost += 1
                continue
            tar.add(path, path.relative_to(folder).as_posix())
            tar.fileobj.flush()  # type: ignore[union-attr]
    temporary = archive.with_suffix(".part")
    temporary.write_bytes(packed.getvalue())
    os.replace(temporary, archive)
    return len(files) - lost, lost


def unpack(archive: Path, folder: Path) -> int:
    """Puts the files of an archive into a folder, with the times at which they were written; returns their number."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
        return sum(member.isfile() for member in tar.getmembers())


def _compressed_at_most(path: Path) -> int:
    size = path.stat().st_size
    return size + size // 1000 + 20 * _HEADER
