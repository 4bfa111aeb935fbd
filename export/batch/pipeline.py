"""The steps of the batch pipeline: files to blocks of lines, blocks through the model, blocks to files in order.

A block is some consecutive lines of one file. Blocks are what workers exchange: they are translated in any order, on
any worker, and carry their number, which puts the lines back into order.
"""

import bz2
import contextlib
import dataclasses
import gzip
import itertools
import json
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from export.wire.tensors import as_text, to_rows
from zoo.cli import disk_full
from zoo.startup import without_greeting

FAILED = "failed"  # tag of the lines without an answer
COUNTERS = "export.batch"

Infer = Callable[[Sequence[bytes]], dict[str, np.ndarray]]


class ModelError(Exception):
    """The model fails at a batch."""


class FileError(Exception):
    """A file cannot be read or written; names it and says why."""


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Names the file that the block reads or writes in the error, of which runners may keep only the text."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path}: {disk_full(error) or getattr(error, 'strerror', None) or error}") from error


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a batch run does."""

    model_path: str  # folder of one version of a SavedModel; any file system that TensorFlow reads
    signature: str = "serving_default"  # the signature to run; it has one input, string [B]
    output_name: str | None = "text"  # the output whose strings are written; `None` writes all outputs as JSON lines
    batch_size: int = 64  # lines that the model gets at once
    block_lines: int = 1_000  # lines in a block, within which they are batched by length
    file_blocks: int = 100  # blocks in an output file


@dataclasses.dataclass(frozen=True)
class Block:
    """Consecutive lines of a file."""

    path: str
    name: str  # the name of its output
    number: int  # the block's number in the file, from 0
    first: int  # the number of its first line in the file, from 1
    lines: list[bytes]  # the lines, without their ends


class ReadBlocks(beam.DoFn):
    """Reads (path, name of the output) and yields the file's blocks; an empty file is one empty block."""

    def __init__(self, block_lines: int):
        self.block_lines = block_lines

    def process(self, element: tuple[str, str]) -> Iterator[Block]:
        path, name = element
        with naming(path), _unpacked(path) as file:
            # Packed files of Beam have no iterator. Only a line feed ends a line; a carriage return before
            # it is dropped.
            lines = (line.removesuffix(b"\n").removesuffix(b"\r") for line in iter(file.readline, b""))
            for number in itertools.count():
                block = list(itertools.islice(lines, self.block_lines))
                if number and not block:
                    return
                yield Block(path, name, number, 1 + number * self.block_lines, block)


@contextlib.contextmanager
def _unpacked(path: str) -> Iterator[IO[bytes]]:
    """Opens a file to read, and unpacks names such as x.gz; Beam takes one that is cut off for whole."""
    unpack: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(Path(path).suffix)
    compression = CompressionTypes.UNCOMPRESSED if unpack else CompressionTypes.AUTO
    with FileSystems.open(path, compression_type=compression) as file, unpack(file) if unpack else file as unpacked:
        yield unpacked


class Translate(beam.DoFn):
    """Replaces the lines of a block by the model's answers; yields what failed as JSON under the tag `FAILED`.

    An empty line takes the place of one that failed.
    """

    def __init__(self, settings: Settings):
        self.settings = settings
        self._shared = Shared()  # one model for all threads of a worker
        self._read = Metrics.counter(COUNTERS, "lines")
        self._failed = Metrics.counter(COUNTERS, FAILED)

    def setup(self) -> None:
        settings = self.settings
        self._infer: Infer = self._shared.acquire(
            lambda: SavedModel(settings.model_path, settings.signature), tag=(settings.model_path, settings.signature)
        )

    def process(self, block: Block) -> Iterator[Any]:
        answers = [b""] * len(block.lines)
        # Lines of similar length share a batch, so that little is padded.
        by_length = sorted(range(len(block.lines)), key=lambda index: len(block.lines[index]))
        for start in range(0, len(by_length), self.settings.batch_size):
            indices = by_length[start : start + self.settings.batch_size]
            for index, answer in zip(indices, self._answers([block.lines[index] for index in indices]), strict=True):
                if isinstance(answer, bytes):
                    answers[index] = answer
                else:
                    self._failed.inc()
                    yield beam.pvalue.TaggedOutput(FAILED, _failure_record(block, index, answer))
        self._read.inc(len(answers))
        yield dataclasses.replace(block, lines=answers)

    def _answers(self, texts: Sequence[bytes]) -> list[bytes | ModelError]:
        """Returns an answer or an error for each text; a batch that fails is halved until the culprits are alone."""
        try:
            outputs = self._infer(texts)
        except ModelError as error:
            if len(texts) == 1:
                return [error]
            half = len(texts) // 2
            return self._answers(texts[:half]) + self._answers(texts[half:])
        return [*output_lines(outputs, self.settings.output_name, len(texts))]


class WriteFile(beam.DoFn):
    """Writes ((name, number of the output file), its blocks) as `OUTPUT/name.NNNNN` and yields that path."""

    def __init__(self, output: str):
        self.output = output

    def process(self, element: tuple[tuple[str, int], Iterable[Block]]) -> Iterator[str]:
        (name, number), blocks = element
        *folders, name = name.split("/")
        folder = FileSystems.join(self.output, *folders) if folders else self.output
        path = FileSystems.join(folder, f"{name}.{number:05d}")
        with contextlib.suppress(OSError, NotImplementedError):  # Object stores have no folders.
            FileSystems.mkdirs(folder)  # Another worker may have made it.
        # A worker may be stopped, and its work be done twice, even at the same time: only whole files get the name.
        temporary = FileSystems.join(folder, f".{name}.{number:05d}.{uuid.uuid4().hex}")
        with naming(path):
            try:
                with FileSystems.create(temporary, "text/plain", CompressionTypes.UNCOMPRESSED) as file:
                    for block in sorted(blocks, key=lambda block: block.number):
                        file.write(b"".join(line + b"\n" for line in block.lines))
                FileSystems.rename([temporary], [path])
            except OSError:
                with contextlib.suppress(OSError):
                    FileSystems.delete([temporary])
                raise
        yield path


class SavedModel:
    """A signature with one input, string [B], of the version in a folder, loaded in this process."""

    def __init__(self, path: str, name: str):
        with without_greeting():
            import tensorflow as tf  # Here, because workers that only read and write files need not wait for it.
            import tensorflow_text  # noqa: F401  the ops of the tokenizers

        self._model = tf.saved_model.load(path)  # The signature alone does not keep its variables alive.
        self._signature = self._model.signatures[name]
        (self._input,) = self._signature.structured_input_signature[1]
        self._constant, self._errors = tf.constant, tf.errors.OpError

    def __call__(self, texts: Sequence[bytes]) -> dict[str, np.ndarray]:
        """Returns the outputs for B texts; raises ModelError if the graph fails at them."""
        try:
            outputs = self._signature(**{self._input: self._constant(list(texts))})
        except self._errors as error:
            raise ModelError(f"{type(error).__name__}: {error.message}") from error
        # With its type: NumPy would make plain bytes of a single string.
        return {name: np.asarray(tensor.numpy(), tensor.dtype.as_numpy_dtype) for name, tensor in outputs.items()}


def output_lines(outputs: dict[str, np.ndarray], name: str | None, count: int) -> list[bytes]:
    """Returns a line for each of `count` texts: the strings of the output `name`; for `None`, all outputs as JSON."""
    if name is not None:
        return [b" ".join(value.splitlines()) for value in outputs[name]]  # An answer stays one line.
    rows = to_rows({key: as_text(array) for key, array in sorted(outputs.items())}, count)
    return [json.dumps(row, ensure_ascii=False).encode() for row in rows]


def translate_files(
    pipeline: beam.Pipeline, files: Sequence[tuple[str, str]], output: str, settings: Settings
) -> beam.PCollection:
    """Adds all steps to a pipeline, and returns the paths that they write; `files` are inputs and names of outputs."""
    translated, failed = (
        pipeline
        | "Files" >> beam.Create(files)
        | "One file a worker" >> beam.Reshuffle()
        | "Read" >> beam.ParDo(ReadBlocks(settings.block_lines))
        | "Spread the blocks" >> beam.Reshuffle()
        | "Translate" >> beam.ParDo(Translate(settings)).with_outputs(FAILED, main="translated")
    )
    failed | "Write failed" >> beam.io.WriteToText(
        FileSystems.join(output, FAILED), ".jsonl", shard_name_template="-SSSSS", skip_if_empty=True
    )
    return (
        translated
        | "Of one file" >> beam.Map(lambda block: ((block.name, block.number // settings.file_blocks), block))
        | "Together" >> beam.GroupByKey()
        | "Write" >> beam.ParDo(WriteFile(output))
    )


def _failure_record(block: Block, index: int, error: ModelError) -> str:
    text = block.lines[index].decode("utf-8", "replace")
    reason = " ".join(str(error).split())
    record = {"file": block.path, "line": block.first + index, "text": text, "error": reason}
    return json.dumps(record, ensure_ascii=False)
