"""Finds examples of a split that are equal to an earlier one, in bounded memory."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.preparation.shard_job import WORK, Job, Plan, duplicates_path
from training.preparation.staging import StagedTexts

Array = NDArray[Any]

_DIGEST = 16  # bytes; collisions are not to be expected
_DIGESTS_AT_A_TIME = 1 << 24
_PIECE = 1 << 14


def digests_path(job: Job) -> Path:
    """Returns the file with a digest of each example of a job."""
    return Path(job.folder) / WORK / f"{job.split}-{job.number:05d}.digests"


def make_digests(job: Job) -> None:
    """Writes the digest of each example of a job."""
    plan = Plan.read(Path(job.folder))
    columns = [StagedTexts(column) for column in plan.splits[job.split].columns.values()]
    temporary = digests_path(job).with_suffix(".tmp")
    with temporary.open("wb") as file:
        for first in range(job.first, job.end, _PIECE):
            raws = [column.raw(first, min(first + _PIECE, job.end)) for column in columns]
            file.write(b"".join(_digests(raws)))
    temporary.replace(digests_path(job))


def _digests(raws: Sequence[tuple[bytes, list[int]]]) -> list[bytes]:
    digests = []
    for number in range(len(raws[0][1]) - 1):
        texts = [data[offsets[number] : offsets[number + 1]].rstrip(b"\r\n") for data, offsets in raws]
        # The length before each text separates the sides.
        joined = b"".join(b"%d:%s" % (len(text), text) for text in texts)
        digests.append(hashlib.blake2b(joined, digest_size=_DIGEST).digest())
    return digests


def mark_duplicates(folder: Path, jobs: Sequence[Job], at_a_time: int = _DIGESTS_AT_A_TIME) -> int:
    """Marks examples that are equal to an earlier one in a file, and returns their number.

    The digests are compared in parts, by their first bits, so that memory does not grow with their number.

    Args:
        folder: The folder of the preparation.
        jobs: All jobs of the split, in order, whose digests are written.
        at_a_time: Approximate number of digests in memory at once.
    """
    count, split = jobs[-1].end, jobs[0].split
    path = duplicates_path(folder, split)
    temporary = path.with_suffix(".tmp")
    repeated = np.memmap(temporary, np.uint8, "w+", shape=(count,))
    parts, total = -(-count // at_a_time), 0
    for part in range(parts):
        numbers, digests = _of_part(jobs, part, parts)
        # The sort is stable, so that the first of equal examples stays the first.
        order = np.lexsort(digests.T)
        ordered = digests[order]
        equal = np.flatnonzero((ordered[1:] == ordered[:-1]).all(axis=1)) + 1
        repeated[numbers[order[equal]]] = 1
        total += len(equal)
    repeated.flush()
    temporary.replace(path)
    return total


def _of_part(jobs: Sequence[Job], part: int, parts: int) -> tuple[Array, Array]:
    """Returns the numbers of the examples with digests in a part, in order, and these digests."""
    numbers, digests = [], []
    for job in jobs:
        of_job = np.fromfile(digests_path(job), "<u8").reshape(-1, _DIGEST // 8)
        chosen = np.flatnonzero(of_job[:, 0] % np.uint64(parts) == part)
        numbers.append(job.first + chosen)
        digests.append(of_job[chosen])
    return np.concatenate(numbers), np.concatenate(digests)
