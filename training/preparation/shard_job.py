"""Makes one shard: reads, filters, encodes and writes consecutive examples of a split. Any worker can do any job."""

import functools
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data import Labelled, Pairs, Texts
from training.data.dataset import Split
from training.data.encoding import Columns, Encoder
from training.data.formats.parallel import blank_side
from training.data.shards.arrays_file import ArraysWriter
from training.data.shards.store import array_names, text_column
from training.preparation.request import PreparationOptions
from training.preparation.staging import StagedColumn, StagedSplit, StagedTexts
from zoo.errors import InputError
from zoo.text import load_tokenizer
from zoo.text.blank import is_blank

Array = NDArray[Any]

WORK = ".work"
"""The folder of temporary files, which is removed when a preparation ends."""
PLAN = "plan.json"

_BYTES = 1 << 20  # of texts that are encoded at once; the encoding takes about fifty times the memory


@dataclass(frozen=True)
class Plan:
    """The configuration of workers, saved in `.work/plan.json`."""

    request: Mapping[str, Any]
    task: str
    settings: Mapping[str, Any]
    dataset: Mapping[str, Any]
    classes: list[str]
    line_break: bool
    splits: Mapping[str, StagedSplit]

    def to_json(self) -> str:
        """Returns the plan as JSON text."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, folder: Path) -> "Plan":
        """Returns the plan of a folder."""
        values = json.loads((folder / WORK / PLAN).read_text(encoding="utf-8"))
        for name, split in values["splits"].items():
            columns = {column: StagedColumn(**staged) for column, staged in split["columns"].items()}
            values["splits"][name] = StagedSplit(split["examples"], columns)
        return cls(**values)

    @property
    def options(self) -> PreparationOptions:
        """The options of the request."""
        return PreparationOptions.from_saved(self.request["options"])

    def keeps_texts(self, split: str) -> bool:
        """Returns whether the texts of a split are saved."""
        return split != "train" or self.options.keep_texts


@dataclass(frozen=True)
class Job:
    """A shard to be made: the examples of a split from `first` to `end` − 1."""

    folder: str
    split: str
    number: int
    first: int
    end: int

    @property
    def file(self) -> str:
        """The file of the shard, in the folder."""
        return f"{self.split}-{self.number:05d}.shard"

    @property
    def report(self) -> Path:
        """The file with the result of the job, which is written last."""
        return Path(self.folder) / WORK / f"{self.split}-{self.number:05d}.json"


@dataclass(frozen=True)
class Report:
    """The result of a job."""

    error: str = ""  # the reason of its failure, in one line
    examples: int = 0
    dropped: Mapping[str, int] | None = None  # by reason
    tokens: Mapping[str, int] | None = None  # by column
    bytes: int = 0
    sha256: str = ""
    skipped: list[str] | None = None  # error messages of lines that are not UTF-8

    @classmethod
    def read(cls, job: Job) -> "Report | None":
        """Returns the report of a job; `None` if it is missing or damaged, or the shard has another size."""
        try:
            report = cls(**json.loads(job.report.read_text(encoding="utf-8")))
            fits = report.error or (Path(job.folder) / job.file).stat().st_size == report.bytes
            return report if fits else None
        except (OSError, ValueError, TypeError):
            return None


def make_shard(job: Job) -> None:
    """Writes a shard and its report; errors of data are reported, not raised, since workers may be on other hosts."""
    try:
        report = _Shard(_context(job.folder), job).write()
    except InputError as error:
        report = Report(error=str(error))
    temporary = job.report.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(report)), encoding="utf-8")
    temporary.replace(job.report)


class Context:
    """A plan with its tokenizers."""

    def __init__(self, folder: Path):
        self.folder, self.plan = folder, Plan.read(folder)
        columns = self.plan.splits["train"].columns
        names = [name for name in columns if name != "label"]
        tokenizers = {name: load_tokenizer(folder / "tokenizers" / name) for name in names}
        self.encode = Encoder(tokenizers, self.plan.classes, self.plan.line_break, str(self.plan.request["spec"]))
        self.widths = {name: 2 if tokenizer.vocab_size <= 1 << 16 else 4 for name, tokenizer in tokenizers.items()}
        if "label" in columns:
            self.widths["label"] = 2 if len(self.plan.classes) <= 1 << 16 else 4


@functools.lru_cache(maxsize=2)
def _cached_context(folder: str, changed: int) -> Context:
    return Context(Path(folder))


def _context(folder: str) -> Context:
    return _cached_context(folder, (Path(folder) / WORK / PLAN).stat().st_mtime_ns)


def duplicates_path(folder: Path, split: str) -> Path:
    """Returns the file with a byte for each example: 1 if it is equal to an earlier one."""
    return folder / WORK / f"{split}.duplicates"


class _Shard:
    """Makes one shard."""

    def __init__(self, context: Context, job: Job):
        self.context, self.job, self.plan = context, job, context.plan
        self.options = context.plan.options if job.split == "train" else PreparationOptions()
        self.texts = {name: StagedTexts(column) for name, column in self.plan.splits[job.split].columns.items()}
        self.dropped: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter(dict.fromkeys(self.texts, 0))
        self.skipped: list[str] = []
        self.examples = 0

    def write(self) -> Report:
        path = self.context.folder / self.job.file
        with ArraysWriter(path, self._widths()) as writer:
            ends = dict.fromkeys(self._columns(), 0)
            for name in ends:
                writer.append(array_names(name)[1], np.zeros(1, np.int64))
            for rows in self._encoded():
                for name, values, lengths in rows:
                    writer.append(array_names(name)[0], values)
                    writer.append(array_names(name)[1], ends[name] + np.cumsum(lengths))
                    ends[name] += len(values)
            sha256 = writer.finish()
        size = path.stat().st_size
        return Report("", self.examples, dict(self.dropped), dict(self.tokens), size, sha256, self.skipped)

    def _columns(self) -> list[str]:
        texts = [text_column(name) for name in self.texts if name != "label"]
        return [*self.texts, *(texts if self.plan.keeps_texts(self.job.split) else ())]

    def _widths(self) -> dict[str, int]:
        widths: dict[str, int] = {}
        for name in self._columns():
            staged = self.texts[name.removesuffix(".text")]
            # An id is made of at least one byte, except where NFKC expands a character of 3 bytes to 18 characters.
            most = 8 * int(staged.offsets[self.job.end] - staged.offsets[self.job.first]) + self.job.end
            values, offsets = array_names(name)
            widths |= {values: self.context.widths.get(name, 1), offsets: 4 if most < 1 << 32 else 8}
        return widths

    def _encoded(self) -> Iterator[list[tuple[str, Array, list[int]]]]:
        """Yields values and lengths of each column, for consecutive pieces of the examples."""
        for first, end in self._pieces():
            indices, columns = self._filtered(first, end)
            if not indices:
                continue
            rows = self.context.encode(_split_of(columns))
            chosen = self._of_allowed_length(rows)
            if len(chosen) < len(indices):
                rows = {name: [column[index] for index in chosen] for name, column in rows.items()}
                columns = {name: [column[index] for index in chosen] for name, column in columns.items()}
            self.examples += len(chosen)
            yield [*self._id_arrays(rows), *self._text_arrays(columns)]

    def _id_arrays(self, rows: Columns) -> Iterator[tuple[str, Array, list[int]]]:
        for name, column in rows.items():
            lengths = list(map(len, column))
            values = np.fromiter(itertools.chain.from_iterable(column), np.int64, sum(lengths))
            self.tokens[name] += len(values)
            yield name, values, lengths

    def _text_arrays(self, columns: Mapping[str, list[str]]) -> Iterator[tuple[str, Array, list[int]]]:
        if self.plan.keeps_texts(self.job.split):
            for name, column in columns.items():
                if name != "label":
                    encoded = [text.encode() for text in column]
                    yield text_column(name), np.frombuffer(b"".join(encoded), np.uint8), list(map(len, encoded))

    def _pieces(self) -> Iterator[tuple[int, int]]:
        """Yields the bounds of pieces of the job: at most `_BYTES` bytes of the first column each, or one example."""
        first = self.job.first
        offsets = next(iter(self.texts.values())).offsets
        while first < self.job.end:
            end = int(np.searchsorted(offsets[first : self.job.end + 1], offsets[first] + _BYTES, side="right")) - 1
            end = first + min(max(end, 1), self.job.end - first)
            yield first, end
            first = end

    def _filtered(self, first: int, end: int) -> tuple[list[int], dict[str, list[str]]]:
        """Returns the examples that remain before the encoding: their indices from `first` on, and their texts."""
        skipping = self.options.invalid == "skip"
        texts = {name: staged.texts(first, end, skipping) for name, staged in self.texts.items()}
        keep = np.ones(end - first, bool)
        if skipping:
            self._drop_invalid(texts, keep, first)
        if self.plan.task == "seq2seq" and all(staged.column.is_lines for staged in self.texts.values()):
            self._drop_blank(texts, keep, first)
        if self.options.duplicates == "drop":
            repeated = np.memmap(duplicates_path(self.context.folder, self.job.split), np.uint8, "r")[first:end] > 0
            self._drop("duplicate", keep, repeated)
        indices = np.flatnonzero(keep).tolist()
        if len(indices) == end - first:
            return indices, texts  # type: ignore[return-value]
        return indices, {name: [column[index] for index in indices] for name, column in texts.items()}  # type: ignore[misc]

    def _drop(self, reason: str, keep: Array, unwanted: Array) -> None:
        if count := int((keep & unwanted).sum()):
            self.dropped[reason] += count
            keep &= ~unwanted

    def _drop_invalid(self, texts: Mapping[str, list[str | None]], keep: Array, first: int) -> None:
        for name, column in texts.items():
            for number in (first + index for index, text in enumerate(column) if text is None):
                self.skipped.append(str(self.texts[name].error(number)))
        invalid = [None in row for row in zip(*texts.values(), strict=True)]
        self._drop("invalid UTF-8", keep, np.array(invalid))

    def _drop_blank(self, texts: Mapping[str, list[str | None]], keep: Array, first: int) -> None:
        blank = np.array([[text is None or is_blank(text) for text in column] for column in texts.values()])
        if self.options.empty == "drop":
            self._drop("empty", keep, np.logical_or(*blank))
        elif len(one_sided := np.flatnonzero(keep & (blank[0] != blank[1]))):
            index = int(one_sided[0])
            files = [Path(staged.column.name) for staged in self.texts.values()]
            empty, other = files if blank[0, index] else reversed(files)
            raise blank_side(first + index + 1, empty, other)

    def _of_allowed_length(self, rows: Columns) -> list[int]:
        """Returns the indices of the examples whose lengths, and ratio of lengths, the options allow."""
        options = self.options
        lengths = np.array([list(map(len, column)) for name, column in rows.items() if name != "label"])
        keep = np.ones(lengths.shape[1], bool)
        if self.plan.dataset.get("joined"):
            return list(range(len(keep)))
        self._drop("fewer tokens than min_tokens", keep, lengths.min(axis=0) < options.min_tokens)
        if options.max_tokens:
            self._drop("more tokens than max_tokens", keep, lengths.max(axis=0) > options.max_tokens)
        if options.max_ratio:
            ratio = lengths.max(axis=0) / lengths.min(axis=0)
            self._drop("ratio of lengths above max_ratio", keep, np.greater(ratio, options.max_ratio))
        return [int(index) for index in np.flatnonzero(keep)]


def _split_of(columns: Mapping[str, list[str]]) -> Split:
    if "source" in columns:
        return Pairs(columns["source"], columns["target"])
    if "label" in columns:
        return Labelled(columns["text"], columns["label"])
    return Texts(columns["text"])
