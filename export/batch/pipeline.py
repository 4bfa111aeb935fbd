"""The steps of the batch pipeline: split files into parts, run the model on each part, write each to its own file.

A part is a number of consecutive lines of one file. Workers exchange parts, translate them in any order and write each
as soon as it is done, so a run that was stopped can be resumed with the remaining parts.
"""

import bz2
import contextlib
import dataclasses
import gzip
import itertools
import json
import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.utils.shared import Shared

from export.wire.tensors import as_text, to_rows
from export.wire.text import one_line
from zoo.runtime.cli import disk_full
from zoo.runtime.cores import available_cores
from zoo.runtime.startup import one_core_for_each_operation, without_greeting, without_onednn

FAILED = "failed"  # the counter of failed lines, and the prefix of the files that list them
KEPT = "kept"  # the counter of the lines that earlier runs have finished
COUNTERS = "export.batch"
TEMPORARY = ".unfinished"  # the suffix of incomplete files

Infer = Callable[[Sequence[bytes]], dict[str, np.ndarray]]


class ModelError(Exception):
    """The model fails on a batch."""


class FileError(Exception):
    """A file cannot be read or written; the message contains its path and the reason."""


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Adds the path of a file to errors of the block, of which runners may keep only the text."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path}: {disk_full(error) or getattr(error, 'strerror', None) or error}") from error


@dataclasses.dataclass(frozen=True)
class BatchSettings:
    """The settings of a batch run."""

    model_path: str  # folder of one version of a SavedModel; any file system that TensorFlow reads
    signature: str = "serving_default"  # the signature to run; it has one input, string [B]
    output_name: str | None = "text"  # the output whose strings are written; `None` writes all outputs as JSON lines
    batch_size: int = 128  # lines in a batch
    file_lines: int = 5_000  # lines in a part, i.e. in an output file; batches are formed by length within a part


@dataclasses.dataclass(frozen=True)
class Part:
    """Consecutive lines of a file."""

    path: str
    name: str  # the name of its output
    number: int  # the part's number in the file, from 0
    first: int  # the number of its first line in the file, from 1
    lines: list[bytes]  # the lines, without their ends

    @property
    def output(self) -> str:
        """The path of its outputs, relative to the output folder."""
        return f"{self.name}.{self.number:05d}"

    @property
    def failures(self) -> str:
        """The path of the list of its failed lines, relative to the output folder."""
        return f"{FAILED}-{quote(self.output, safe='')}.jsonl"


class ReadParts(beam.DoFn):
    """Reads (path, name of the output) and yields the file's parts; an empty file is one empty part.

    Parts whose outputs are in `finished` are skipped.
    """

    def __init__(self, file_lines: int, finished: Collection[str] = ()):
        self.file_lines, self.finished = file_lines, finished
        self._skipped = Metrics.counter(COUNTERS, KEPT)

    def process(self, element: tuple[str, str]) -> Iterator[Part]:
        path, name = element
        with naming(path), _unpacked(path) as file:
            # Beam's compressed files have no iterator. Only a line feed ends a line; a carriage return before
            # it is dropped.
            lines = (line.removesuffix(b"\n").removesuffix(b"\r") for line in iter(file.readline, b""))
            for number in itertools.count():
                part_lines = list(itertools.islice(lines, self.file_lines))
                if number and not part_lines:
                    return
                part = Part(path, name, number, 1 + number * self.file_lines, part_lines)
                if part.output in self.finished:
                    self._skipped.inc(len(part_lines))
                else:
                    yield part


@contextlib.contextmanager
def _unpacked(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for reading and decompresses `.gz` and `.bz2`; Beam itself would not notice a truncated file."""
    unpack: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(Path(path).suffix)
    compression = CompressionTypes.UNCOMPRESSED if unpack else CompressionTypes.AUTO
    with FileSystems.open(path, compression_type=compression) as file, unpack(file) if unpack else file as unpacked:
        yield unpacked


class Translate(beam.DoFn):
    """Writes the model's outputs for the lines of a part to `OUTPUT/name.NNNNN`, and yields that path.

    The output of a failed line is empty; `OUTPUT/failed-name.NNNNN.jsonl` lists the failed lines.
    """

    def __init__(self, output: str, settings: BatchSettings):
        self.output, self.settings = output, settings
        self._shared = Shared()  # one model for all threads of a worker
        self._read = Metrics.counter(COUNTERS, "lines")
        self._failed = Metrics.counter(COUNTERS, FAILED)

    def setup(self) -> None:
        settings = self.settings
        self._infer: Infer = self._shared.acquire(
            lambda: SavedModel(settings.model_path, settings.signature), tag=(settings.model_path, settings.signature)
        )

    def process(self, part: Part) -> Iterator[str]:
        answers, failures = [b""] * len(part.lines), []
        # Lines of similar length share a batch, which minimizes padding. The longest come first, so that no core waits
        # long for the last batch.
        by_length = sorted(range(len(part.lines)), key=lambda index: len(part.lines[index]), reverse=True)
        size = self.settings.batch_size
        batches = [by_length[start : start + size] for start in range(0, len(by_length), size)]
        # Cores run different batches, because single operations are too small to be split between cores.
        with ThreadPoolExecutor(available_cores()) as cores:
            answered = cores.map(lambda indices: self._answers([part.lines[index] for index in indices]), batches)
            for index, answer in zip(by_length, itertools.chain.from_iterable(answered), strict=True):
                if isinstance(answer, bytes):
                    answers[index] = answer
                else:
                    failures.append((index, answer))
        records = [_failure_record(part, index, error).encode() for index, error in sorted(failures, key=itemgetter(0))]
        if records:  # before the outputs, whose presence marks the part as finished
            write_whole(self.output, part.failures, records)
        path = write_whole(self.output, part.output, answers)
        self._read.inc(len(answers))
        self._failed.inc(len(failures))
        yield path

    def _answers(self, texts: Sequence[bytes]) -> list[bytes | ModelError]:
        """Returns an output or an error for each text; a batch that fails is split in halves and tried again."""
        try:
            outputs = self._infer(texts)
        except ModelError as error:
            if len(texts) == 1:
                return [error]
            half = len(texts) // 2
            return self._answers(texts[:half]) + self._answers(texts[half:])
        return [*output_lines(outputs, self.settings.output_name, len(texts))]


def write_whole(folder: str, path: str, lines: Iterable[bytes]) -> str:
    """Writes lines atomically to a path below a folder, and returns the full path."""
    *folders, name = path.split("/")
    folder = FileSystems.join(folder, *folders) if folders else folder
    path = FileSystems.join(folder, name)
    with contextlib.suppress(OSError, NotImplementedError):  # Object stores have no folders.
        FileSystems.mkdirs(folder)  # Another worker may have created it.
    # A worker may be stopped, and a part may be computed twice, even concurrently: only complete files are renamed.
    temporary = FileSystems.join(folder, f".{name}.{uuid.uuid4().hex}{TEMPORARY}")
    with naming(path):
        try:
            with FileSystems.create(temporary, "text/plain", CompressionTypes.UNCOMPRESSED) as file:
                file.write(b"".join(line + b"\n" for line in lines))
            FileSystems.rename([temporary], [path])
        except OSError:
            with contextlib.suppress(OSError):
                FileSystems.delete([temporary])
            raise
    return path


def load_tensorflow() -> Any:
    """Configures TensorFlow for several batches at a time, imports it and returns it.

    The import is not at the top, because workers that only read and write files do not need it.
    """
    without_onednn()
    one_core_for_each_operation()
    with without_greeting():
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  the ops of the tokenizers
    return tf


class SavedModel:
    """A signature with one input, string [B], of the version in a folder, loaded in this process."""

    def __init__(self, path: str, name: str):
        tf = load_tensorflow()
        self._model = tf.saved_model.load(path)  # keeps the variables of the signature alive
        self._signature = self._model.signatures[name]
        (self._input,) = self._signature.structured_input_signature[1]
        self._constant, self._errors = tf.constant, tf.errors.OpError

    def __call__(self, texts: Sequence[bytes]) -> dict[str, np.ndarray]:
        """Returns the outputs for B texts; raises ModelError if the graph fails."""
        try:
            outputs = self._signature(**{self._input: self._constant(list(texts))})
        except self._errors as error:
            raise ModelError(f"{type(error).__name__}: {error.message}") from error
        # With an explicit type, because NumPy would convert a single string to plain bytes.
        return {name: np.asarray(tensor.numpy(), tensor.dtype.as_numpy_dtype) for name, tensor in outputs.items()}


def output_lines(outputs: dict[str, np.ndarray], name: str | None, count: int) -> list[bytes]:
    """Returns a line for each of `count` texts: the strings of the output `name`; for `None`, all outputs as JSON."""
    if name is not None:
        return [*map(one_line, outputs[name])]
    rows = to_rows({key: as_text(array) for key, array in sorted(outputs.items())}, count)
    return [json.dumps(row, ensure_ascii=False).encode() for row in rows]


def translate_files(
    pipeline: beam.Pipeline,
    files: Sequence[tuple[str, str]],
    output: str,
    settings: BatchSettings,
    finished: Collection[str] = (),
) -> beam.PCollection:
    """Adds all steps to a pipeline, and returns the paths that they write.

    Args:
        pipeline: The pipeline.
        files: Inputs and names of outputs.
        output: The folder of the outputs.
        settings: The settings of the run.
        finished: Paths below that folder that earlier runs have written; these parts are skipped.
    """
    return (
        pipeline
        | "Files" >> beam.Create(files)
        | "One file a worker" >> beam.Reshuffle()
        | "Read" >> beam.ParDo(ReadParts(settings.file_lines, frozenset(finished)))
        | "Spread the parts" >> beam.Reshuffle()
        | "Translate" >> beam.ParDo(Translate(output, settings))
    )


def _failure_record(part: Part, index: int, error: ModelError) -> str:
    text = part.lines[index].decode("utf-8", "replace")
    reason = " ".join(str(error).split())
    record = {"file": part.path, "line": part.first + index, "text": text, "error": reason}
    return json.dumps(record, ensure_ascii=False)
