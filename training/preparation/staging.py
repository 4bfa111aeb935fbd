"""The first pass over a corpus: indexes the examples, so that any worker can read any of them.

The texts of a split are concatenated in files, with their offsets in other files. For plain text, these files are the
corpus itself, which is not copied; compressed files and other formats are unpacked into the folder.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from training.data import Dataset, Labelled, Pairs
from training.data.files import not_utf8, opened
from training.data.formats.parallel import unequal
from training.data.line_reader import LineReader
from training.preparation.sample import Sample
from zoo.errors import InputError
from zoo.text import without_surrogates

Array = NDArray[Any]

_LINES, _BYTES = 4096, 1 << 20
_OFFSET = np.dtype("<u8")


@dataclass(frozen=True)
class StagedColumn:
    r"""The texts of one column of a split.

    Attributes:
        values: The file of the texts.
        offsets: The file with the offset of each text in `values`, and the end of the last one, eight bytes each.
        is_lines: Whether they are lines that end in `\n` or `\r\n`.
        name: The original file of the corpus, for messages.
        size: The number of bytes of `values` when it was read; it must not change while shards are made.
    """

    values: str
    offsets: str
    is_lines: bool
    name: str
    size: int


@dataclass(frozen=True)
class StagedSplit:
    """The texts of a split, by column."""

    examples: int
    columns: Mapping[str, StagedColumn]


class StagedTexts:
    """The texts of one column, mapped into memory.

    Raises:
        InputError: If the corpus changed since the first pass.
    """

    def __init__(self, column: StagedColumn):
        path = Path(column.values)
        if not path.is_file() or path.stat().st_size != column.size:
            raise InputError(f"{column.name} changed while it was prepared. Remove the output, and start again.")
        self.column = column
        self.offsets: Array = np.memmap(column.offsets, _OFFSET, "r")
        self._values: Array = np.memmap(path, np.uint8, "r") if column.size else np.zeros(0, np.uint8)

    def raw(self, first: int, end: int) -> tuple[bytes, list[int]]:
        """Returns the bytes of some texts, the offsets of their starts and the end of the last one."""
        offsets = self.offsets[first : end + 1].astype(np.int64)
        return self._values[offsets[0] : offsets[-1]].tobytes(), (offsets - offsets[0]).tolist()

    def texts(self, first: int, end: int, skipping: bool = False) -> list[str | None]:
        """Returns some texts.

        Raises:
            InputError: If one is not UTF-8, unless `skipping`: then it is `None`.
        """
        data, offsets = self.raw(first, end)
        try:
            if self.column.is_lines:
                lines: list[str | None] = list(data.decode().removesuffix("\n").split("\n"))
                return [_without_return(line) for line in lines] if b"\r" in data else lines
            return [data[start:stop].decode() for start, stop in zip(offsets, offsets[1:], strict=False)]
        except UnicodeDecodeError as error:
            if not skipping:
                raise self.error(first + data.count(b"\n", 0, error.start)) from None
        return [_line(data[start:stop]) for start, stop in zip(offsets, offsets[1:], strict=False)]

    def error(self, number: int) -> InputError:
        """Returns the error for a line that is not UTF-8."""
        data, _ = self.raw(number, number + 1)
        try:
            data.decode()
        except UnicodeDecodeError as error:
            return not_utf8(self.column.name, number + 1, data[error.start])
        raise AssertionError(f"line {number + 1} of {self.column.name} is UTF-8")


def _without_return(line: str | None) -> str | None:
    return line and line.removesuffix("\r")


def _line(data: bytes) -> str | None:
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        return None


def stage(data: Dataset[Any], split: str, folder: Path, sample: Sample | None, skipping: bool) -> StagedSplit:
    """Reads a split once, and returns the files and offsets of its texts.

    Args:
        data: The data.
        split: The split.
        folder: The folder for offsets and unpacked texts.
        sample: A sample that is drawn from all examples, or `None`.
        skipping: Whether lines that are not UTF-8 are skipped instead of raising an error.

    Raises:
        InputError: If the data are bad.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if data.line_files is not None:
        return _stage_lines(data.line_files(split), folder, sample, skipping)
    return _stage_examples(data, split, folder, sample)


def columns_of(examples: Any) -> dict[str, list[str]]:
    """Returns the texts of examples by the name of their column."""
    if isinstance(examples, Pairs):
        return {"source": examples.source, "target": examples.target}
    if isinstance(examples, Labelled):
        return {"text": examples.texts, "label": examples.labels}
    return {"text": examples.texts}


def _stage_lines(files: Mapping[str, Path], folder: Path, sample: Sample | None, skipping: bool) -> StagedSplit:
    with contextlib.ExitStack() as stack:
        readers = {name: LineReader(stack.enter_context(opened(path))) for name, path in files.items()}
        outputs = {
            name: _Output(stack, folder / name, path, packed=path.suffix in (".gz", ".zst"))
            for name, path in files.items()
        }
        for name, reader in readers.items():
            if reader.is_at_end:
                raise InputError(f"{files[name]}:1: empty file; a split needs at least one line.")
        count = 0
        while True:
            blocks = _next_lines(files, readers, count)
            lines = len(next(iter(blocks.values()))[2]) - 1
            if not lines:
                break
            for name, (position, block, offsets) in blocks.items():
                if not skipping:
                    _check_utf8(files[name], count, block)
                outputs[name].write(block, position, offsets)
            if sample is not None:
                decoded = _Lines({name: (block, offsets) for name, (_, block, offsets) in blocks.items()})
                sample.add(lines, decoded)
            count += lines
        columns = {name: output.finish(is_lines=True, name=str(files[name])) for name, output in outputs.items()}
        return StagedSplit(count, columns)


def _next_lines(
    files: Mapping[str, Path], readers: Mapping[str, LineReader], count: int
) -> dict[str, tuple[int, bytes, Array]]:
    """Returns equally many lines of each file: their position in it, their bytes, and the offsets in these."""
    blocks: dict[str, tuple[int, bytes, Array]] = {}
    num_lines, most_bytes = _LINES, _BYTES
    for name, reader in readers.items():
        position = reader.position
        block, offsets = reader.take(num_lines, most_bytes)
        if blocks and (len(offsets) - 1 < num_lines or not num_lines):
            counts = {column: count + len(taken[2]) - 1 for column, taken in blocks.items()}
            counts[name] = count + len(offsets) - 1
            counts = {column: total + readers[column].count_rest() for column, total in counts.items()}
            if len(set(counts.values())) > 1:
                raise unequal(*((files[column], total) for column, total in counts.items()))
        blocks[name] = position, block, offsets
        num_lines, most_bytes = len(offsets) - 1, 1 << 62
    return blocks


def _check_utf8(path: Path, count: int, block: bytes) -> None:
    try:
        block.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(path, count + block.count(b"\n", 0, error.start) + 1, block[error.start]) from error


class _Lines:
    """The lines of a block by their number, decoded lazily; `None` if they are not UTF-8."""

    def __init__(self, blocks: Mapping[str, tuple[bytes, Array]]):
        self._blocks = blocks

    def __call__(self, number: int) -> tuple[str, ...] | None:
        lines = [_line(block[offsets[number] : offsets[number + 1]]) for block, offsets in self._blocks.values()]
        return None if None in lines else tuple(line for line in lines if line is not None)


def _stage_examples(data: Dataset[Any], split: str, folder: Path, sample: Sample | None) -> StagedSplit:
    pieces = data.pieces(split) if data.pieces is not None else _pieces_in_memory(data, split)
    with contextlib.ExitStack() as stack:
        outputs: dict[str, _Output] = {}
        count = 0
        for piece in pieces:
            columns = columns_of(piece)
            for name, texts in columns.items():
                if name not in outputs:
                    outputs[name] = _Output(stack, folder / name, Path(data.spec), packed=True)
                encoded = [without_surrogates(text).encode() for text in texts]
                outputs[name].write(b"".join(encoded), 0, np.cumsum([0, *map(len, encoded)]))
            if sample is not None:
                rows = list(zip(*columns.values(), strict=True))
                sample.add(len(rows), rows.__getitem__)
            count += len(piece)
        where = f"{data.spec}, {split}"
        staged = {name: output.finish(is_lines=False, name=where) for name, output in outputs.items()}
        return StagedSplit(count, staged)


def _pieces_in_memory(data: Dataset[Any], split: str) -> Iterator[Any]:
    examples = data.split(split)
    for first in range(0, len(examples), _LINES):
        yield examples.take(range(first, min(first + _LINES, len(examples))))


class _Output:
    """Writes the staged files of one column."""

    def __init__(self, stack: contextlib.ExitStack, path: Path, original: Path, packed: bool):
        self._path = path.with_name(f"{path.name}.texts") if packed else original
        self._values: IO[bytes] | None = stack.enter_context(self._path.open("wb")) if packed else None
        self._offsets_path = path.with_name(f"{path.name}.offsets")
        self._offsets = stack.enter_context(self._offsets_path.open("wb"))
        self._end = 0

    def write(self, block: bytes, position: int, offsets: Array) -> None:
        """Appends a block of texts with their offsets in it; the block begins at `position` of the original file."""
        if self._values is not None:
            position = self._end
            self._values.write(block)
        self._offsets.write((position + offsets[:-1]).astype(_OFFSET).tobytes())
        self._end = position + len(block)

    def finish(self, is_lines: bool, name: str) -> StagedColumn:
        """Completes the files and returns the column."""
        self._offsets.write(np.array([self._end], _OFFSET).tobytes())
        for file in (self._offsets, self._values):
            if file is not None:
                file.flush()
        size = self._path.stat().st_size
        return StagedColumn(str(self._path.absolute()), str(self._offsets_path.absolute()), is_lines, name, size)
