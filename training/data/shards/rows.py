"""Rows of ids in flat arrays, in memory or mapped from files, from which batches are made."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from zoo.vocabulary import END, PAD

Array = NDArray[Any]


class Part(NamedTuple):
    """Consecutive rows in one flat array."""

    values: Array  # [M], all rows concatenated
    offsets: Array  # [rows + 1], the start of each row, and the end of the last


class Rows:
    """Rows of ids, numbered from 0, in one flat array or in several.

    Args:
        parts: The arrays, in order; they may be mapped from files.
        limit: Largest length of a row, or `None`. A longer row is truncated; if it ended in the end token, it still
            does.

    Example:
        >>> rows = Rows.of([[7, 8, 2], [9, 2]])
        >>> len(rows), rows.lengths([1, 0]).tolist(), rows.gather([1, 0], 4).tolist()
        (2, [2, 3], [[9, 2, 0, 0], [7, 8, 2, 0]])
        >>> rows.cut(2).gather([0], 2).tolist()
        [[7, 2]]
    """

    def __init__(self, parts: Sequence[Part], limit: int | None = None):
        self.parts, self.limit = list(parts), limit
        self._first_rows = np.cumsum([0, *(len(part.offsets) - 1 for part in self.parts)])
        self._first_values = np.cumsum([0, *(len(part.values) for part in self.parts)])

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Self:
        """Returns rows in memory."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        values = np.fromiter(itertools.chain.from_iterable(rows), np.int32, int(offsets[-1]))
        return cls([Part(values, offsets)])

    def cut(self, limit: int) -> "Rows":
        """Returns the rows truncated to a maximum length, which replaces an earlier one."""
        return Rows(self.parts, limit)

    def __len__(self) -> int:
        return int(self._first_rows[-1])

    def values(self) -> Array:
        """Returns the ids of all rows in one array, not truncated."""
        return np.concatenate([np.zeros(0, np.int32), *(part.values.astype(np.int32) for part in self.parts)])

    @property
    def num_values(self) -> int:
        """Number of ids in all rows, not truncated."""
        return int(self._first_values[-1])

    def lengths(self, examples: Any) -> Array:
        """Returns the lengths of some rows, by their numbers."""
        examples = np.asarray(examples, np.int64)
        lengths = np.empty(len(examples), np.int64)
        for part, indices, rows in self._by_part(examples):
            lengths[indices] = part.offsets[rows + 1].astype(np.int64) - part.offsets[rows].astype(np.int64)
        return lengths if self.limit is None else np.minimum(lengths, self.limit)

    def all_lengths(self) -> Array:
        """Returns the lengths of all rows."""
        lengths = [np.diff(part.offsets.astype(np.int64)) for part in self.parts]
        whole = np.concatenate(lengths) if lengths else np.zeros(0, np.int64)
        return whole if self.limit is None else np.minimum(whole, self.limit)

    def gather(self, examples: Any, width: int, num_rows: int | None = None) -> Array:
        """Returns some rows as one int32 array, padded.

        Args:
            examples: Their numbers.
            width: Tokens in a row of the array, padding included; at least the length of each of these rows.
            num_rows: Rows of the array, of which the last ones are padding. Default: the number of examples.
        """
        examples = np.asarray(examples, np.int64)
        gathered = np.full((num_rows or len(examples), width), PAD, np.int32)
        columns = np.arange(width)
        for part, indices, rows in self._by_part(examples):
            starts = part.offsets[rows].astype(np.int64)
            lengths = part.offsets[rows + 1].astype(np.int64) - starts
            allowed = lengths if self.limit is None else np.minimum(lengths, self.limit)
            inside = columns < allowed[:, None]
            positions = (starts[:, None] + columns)[inside]
            filled = np.full(inside.shape, PAD, np.int32)
            filled[inside] = part.values[positions]
            if self.limit is not None:
                cut = np.flatnonzero(lengths > self.limit)
                ended = cut[part.values[(starts + lengths - 1)[cut]] == END]
                filled[ended, self.limit - 1 : self.limit] = END
            gathered[indices] = filled
        return gathered

    def lists(self, examples: Any) -> list[list[int]]:
        """Returns some rows as lists, by their numbers."""
        lengths = self.lengths(examples)
        rows = self.gather(examples, int(lengths.max(initial=0)))
        return [row[:length].tolist() for row, length in zip(rows, lengths, strict=True)]

    def select(self, examples: Any) -> "Rows":
        """Returns some rows, by their numbers, as rows in memory; each part is read only once."""
        examples = np.asarray(examples, np.int64)
        pieces, lengths = [], np.zeros(len(examples), np.int64)
        for part, indices, rows in self._by_part(examples):
            starts = part.offsets[rows].astype(np.int64)
            lengths[indices] = part.offsets[rows + 1].astype(np.int64) - starts
            pieces.append((part, indices, starts))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        values = np.empty(int(offsets[-1]), np.int32)
        for part, indices, starts in pieces:
            counts = lengths[indices]
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            values[np.repeat(offsets[:-1][indices], counts) + within] = part.values[np.repeat(starts, counts) + within]
        return Rows([Part(values, offsets)], self.limit)

    def take(self, positions: Array) -> Array:
        """Returns ids by their positions in the concatenation of all rows."""
        if len(self.parts) == 1:
            return self.parts[0].values[positions].astype(np.int32)
        taken = np.empty(positions.shape, np.int32)
        owners = np.searchsorted(self._first_values, positions, side="right") - 1
        for number in np.unique(owners):
            is_in_part = owners == number
            taken[is_in_part] = self.parts[number].values[positions[is_in_part] - self._first_values[number]]
        return taken

    def split_long(self, limit: int) -> "Rows":
        """Returns all ids in rows of at most `limit` tokens: longer rows are split, empty ones removed."""
        return Rows([Part(part.values, _with_breaks(part.offsets.astype(np.int64), limit)) for part in self.parts])

    def _by_part(self, examples: Array) -> Iterator[tuple[Part, Any, Array]]:
        """Yields each part that has some of the rows, their indices in `examples`, and their numbers in the part."""
        if len(self.parts) == 1:
            yield self.parts[0], slice(len(examples)), examples
            return
        owners = np.searchsorted(self._first_rows, examples, side="right") - 1
        order = np.argsort(owners, kind="stable")
        edges = np.flatnonzero(np.diff(owners[order])) + 1
        for indices in np.split(order, edges) if len(order) else ():
            number = owners[indices[0]]
            yield self.parts[number], indices, examples[indices] - self._first_rows[number]


def _with_breaks(offsets: Array, limit: int) -> Array:
    """Returns offsets with additional ones, so that no row is longer than the limit, and none is empty."""
    lengths = np.diff(offsets)
    counts = np.maximum(-(-lengths // limit), 0)
    firsts = np.repeat(np.cumsum(counts) - counts, counts)
    starts = np.repeat(offsets[:-1], counts) + (np.arange(counts.sum()) - firsts) * limit
    return np.concatenate([starts, offsets[-1:]])


def count_longer(columns: Sequence[Rows], limit: int) -> int:
    """Returns the number of examples that exceed a limit in a column; part n of all columns has the same examples."""
    longer = 0
    for parts in zip(*(rows.parts for rows in columns), strict=True):
        longer += int(np.any([np.diff(part.offsets) > limit for part in parts], axis=0).sum())
    return longer
