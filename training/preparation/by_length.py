"""Sorts the examples of a split by their lengths, for `training.data.order.Strata`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.shards.arrays_file import ArraysWriter, open_arrays
from training.data.shards.manifest import FileEntry
from training.data.shards.store import array_names

Array = NDArray[Any]

_ROWS = 1 << 18


def write_order(folder: Path, name: str, shards: Sequence[FileEntry], columns: Sequence[str]) -> FileEntry:
    """Writes the order of all examples of some shards, by counting sort: memory grows with the different lengths only.

    Examples are sorted by their longest side, then by the last of the `columns`, and so on to the first.
    """
    counts: Counter[tuple[int, ...]] = Counter()
    for lengths in _lengths(folder, shards, columns):
        _, firsts, times = np.unique(_keys(lengths), return_index=True, return_counts=True)
        counts.update(dict(zip(map(tuple, lengths[firsts].tolist()), times.tolist(), strict=True)))
    cells = np.array(sorted(counts, key=lambda cell: (max(cell), cell[::-1])), np.int64).reshape(-1, len(columns))
    sizes = np.array([counts[tuple(cell)] for cell in cells.tolist()], np.int64)
    total = int(sizes.sum())
    path, width = folder / name, 4 if total < 1 << 32 else 8
    temporary = path.with_name(f".tmp-{name}")
    examples = np.memmap(temporary, f"<u{width}", "w+", shape=(max(total, 1),))
    next_positions, first = np.cumsum(sizes) - sizes, 0
    keys = _keys(cells)
    sorter = np.argsort(keys)
    for lengths in _lengths(folder, shards, columns):
        of_cell = sorter[np.searchsorted(keys, _keys(lengths), sorter=sorter)]
        order = np.argsort(of_cell, kind="stable")
        ordered = of_cell[order]
        rank = np.arange(len(ordered)) - np.searchsorted(ordered, ordered)
        examples[next_positions[ordered] + rank] = first + order
        next_positions += np.bincount(ordered, minlength=len(next_positions))
        first += len(lengths)
    with ArraysWriter(path, {"lengths": 4, "counts": 8, "examples": width}) as writer:
        writer.append("lengths", cells.reshape(-1))
        writer.append("counts", sizes)
        for start in range(0, total, _ROWS):
            writer.append("examples", examples[start : min(start + _ROWS, total)])
        sha256 = writer.finish()
    temporary.unlink()
    return FileEntry(name, total, path.stat().st_size, sha256)


def _keys(lengths: Array) -> Array:
    """Returns a unique number for each different row of lengths, [rows, one or two columns]."""
    keys: Array = lengths @ (np.int64(1) << 32 * np.arange(lengths.shape[1], dtype=np.int64))
    return keys


def _lengths(folder: Path, shards: Sequence[FileEntry], columns: Sequence[str]) -> Iterator[Array]:
    """Yields the lengths of all examples, [rows, columns], some at a time."""
    for shard in shards:
        arrays = open_arrays(folder / shard.file)
        offsets = [arrays[array_names(column)[1]] for column in columns]
        for start in range(0, shard.examples, _ROWS):
            pieces = [column[start : min(start + _ROWS, shard.examples) + 1].astype(np.int64) for column in offsets]
            yield np.stack([np.diff(piece) for piece in pieces], axis=1)
