"""Datasets of TensorFlow Datasets (TFDS): translations, classified texts and plain texts.

TFDS is imported when a `tfds:` SPEC is first opened. A prepared dataset is read without TensorFlow, on every backend:
its files contain `tf.train.Example` messages, which need protocol buffers only. TensorFlow is needed where TFDS has to
download and prepare a dataset.
"""

import contextlib
import difflib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from training.data.dataset import SPLITS, Dataset, Labelled, LabelledData, Pairs, ParallelData, TextData, Texts
from training.data.files import lines_of
from training.data.formats.labelled import check_classes, check_labels
from training.data.formats.tfrecord import read_records
from training.data.held_out import SHARE, with_held_out
from training.data.registry import register_data
from zoo.errors import InputError, unknown_name
from zoo.text.blank import is_blank

FORM = "tfds:NAME[/CONFIG][:SRC-TGT]"

_NAMES = {"train": ("train",), "val": ("validation", "val", "valid", "dev"), "test": ("test",)}
_INFO = "dataset_info.json"
_HIDDEN = -1  # The label of examples whose labels are not published, such as those of GLUE's test splits.
_RETRIES = 4
_CATALOG = "https://www.tensorflow.org/datasets/catalog/overview"


@register_data("tfds", FORM, downloads=True)
def load_tfds(
    spec: str, seed: int = 0, max_examples: int = 0, check_task: Callable[[str], None] = lambda task: None
) -> Dataset[Any]:
    """Opens a dataset of TFDS, such as `tfds:wmt14_translate/de-en:de-en`; downloads and prepares it if necessary.

    NAME[/CONFIG] may also be the folder of a prepared dataset, the one with `dataset_info.json`. The task is derived
    from the features. Two texts, named as the languages or declared by the dataset as input and output, are for
    sequence to sequence; a text and a `ClassLabel`, classification; a single text, language modelling. The split
    `validation` is val; without one, a tenth of the training examples is held out, or the last tenth of one long text.
    A test split may be missing. For the arguments see `load_data`.

    Returns:
        The dataset. By default translations have one subword vocabulary for both languages, classified texts have
        words, one long text has characters and separate texts have subwords.

    Raises:
        InputError: The name, configuration or folder is unknown, or the dataset cannot be downloaded or is of another
            kind.
    """
    name, languages = _parse(spec)
    with _tensorflow_in_reach():
        source = _Source(name, _open(name), max_examples)
        reading = _pairs_reading(source, languages) or _labelled_reading(source) or _text_reading(source)
        if reading is None or languages and reading[0] is not ParallelData:
            expected = f"texts named {languages}" if languages else "a translation, a text and its class, or a text"
            raise InputError(f"The features of {name} are {source.described()}; expected {expected}.")
        # Features and task are checked before gigabytes are downloaded.
        check_task(reading[0].task)
        source.prepare()
    dataset, read, options = reading
    if dataset is TextData:
        options = {"joined": source.is_one_text, "tokenizer": "chars" if source.is_one_text else "subword"}
    if "val" not in source.splits:
        where = f"{name}, split train"
        read = _with_last_tenth(read, where) if options.get("joined") else with_held_out(read, seed, where)
    splits = tuple(split for split in SPLITS if split != "test" or split in source.splits)
    # The test split is read when needed, since published data may be large, or lack its labels.
    opened: Dataset[Any] = dataset(spec=spec, load_split=read, splits=splits, checked=("train", "val"), **options)
    return opened


class _Source:
    """A dataset of TFDS, read column by column after its preparation."""

    def __init__(self, name: str, builder: Any, max_examples: int):
        self.name, self.builder, self.max_examples = name, builder, max_examples
        # TFDS reads them from a folder in any order.
        self.features = dict(sorted((builder.info.features or {}).items()))
        self.splits: dict[str, str] = {}
        self.is_one_text = False

    def prepare(self) -> None:
        """Downloads and prepares the dataset if necessary, and matches its splits to ours."""
        # A dataset opened by its folder is already prepared.
        if type(self.builder).__name__ != "ReadOnlyBuilder" and not self.builder.is_prepared():
            _prepare(self.name, self.builder)
        available = self.builder.info.splits
        matches = {ours: [theirs for theirs in names if theirs in available] for ours, names in _NAMES.items()}
        self.splits = {ours: theirs[0] for ours, theirs in matches.items() if theirs}
        if "train" not in self.splits:
            raise InputError(f"{self.name} has no split train; its splits are {', '.join(available) or 'none'}.")
        self.is_one_text = available[self.splits["train"]].num_examples == 1

    def keys(self, kind: str) -> list[str]:
        """Returns the names of the scalar features of a class."""
        return [key for key, value in self.features.items() if type(value).__name__ == kind and value.shape == ()]

    def supervised(self) -> tuple[str, str]:
        """Returns the features that the dataset declares as input and output; empty if it has none."""
        keys = self.builder.info.supervised_keys
        return keys if keys and len(keys) == 2 and all(isinstance(key, str) for key in keys) else ("", "")

    def described(self) -> str:
        """Returns a description of the features, for messages."""
        return ", ".join(f"{key} ({type(value).__name__})" for key, value in self.features.items()) or "unknown"

    def at(self, split: str, number: int) -> str:
        """Returns the place of an example, for messages, with its slice in TFDS, such as `train[7:8]`."""
        theirs = self.splits[split]
        return f"{self.name}, example {number} of split {theirs} ({theirs}[{number}:{number + 1}])"

    def columns(self, split: str, *keys: str) -> list[list[Any]]:
        """Reads features of the examples of a split: text as `str`, the number of a label as `int`."""
        columns: list[list[Any]] = [[] for _ in keys]
        limit = self.max_examples if split == "train" and self.max_examples else None
        for number, values in enumerate(islice(_examples(self.builder, self.splits[split], keys), limit)):
            for key, value, column in zip(keys, values, columns, strict=True):
                column.append(self._decoded(value, key, split, number))
        if not columns[0]:
            raise InputError(f"{self.name}: split {self.splits[split]} is empty; a split needs at least one example.")
        return columns

    def _decoded(self, value: Any, key: str, split: str, number: int) -> str | int:
        if not isinstance(value, bytes):
            return value if isinstance(value, str) else int(value)
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = value[error.start]
            raise InputError(f"{self.at(split, number)}: invalid UTF-8 in {key} (byte 0x{byte:02x}).") from error


_Reading = tuple[type[Any], Callable[[str], Any], dict[str, Any]]


def _pairs_reading(source: _Source, languages: str) -> _Reading | None:
    """Returns the reader of a translation, or `None` for other data."""
    texts, named = source.keys("Text"), source.supervised()
    cuts = [(languages[:i], languages[i + 1 :]) for i, character in enumerate(languages) if character == "-"]
    directions = cuts if languages else [named]
    fitting = [(left, right) for left, right in directions if left in texts and right in texts and left != right]
    if not fitting:
        if not languages and type(source.builder.info.features).__name__ == "Translation":
            raise InputError(f"{source.name} translates between {' and '.join(texts)}; append :SRC-TGT to the SPEC.")
        return None
    keys = fitting[0]

    def read(split: str) -> Pairs:
        pairs = Pairs(*source.columns(split, *keys))
        for number, sides in enumerate(zip(pairs.source, pairs.target, strict=True)):
            blank = [key for key, side in zip(keys, sides, strict=True) if is_blank(side)]
            if len(blank) == 1:
                raise InputError(f"{source.at(split, number)}: {blank[0]} is blank, but the other side is not.")
        return pairs

    return ParallelData, read, {"tokenizer": "subword", "shared_vocabulary": True}


def _labelled_reading(source: _Source) -> _Reading | None:
    """Returns the reader of classified texts, or `None` for other data."""
    text, label = source.supervised()
    texts, labels = source.keys("Text"), source.keys("ClassLabel")
    if text not in texts or label not in labels:
        text = "text" if "text" in texts else texts[0] if len(texts) == 1 else ""
        label = "label" if "label" in labels else labels[0] if len(labels) == 1 else ""
    if not text or not label:
        return None
    names = source.features[label].names
    train_labels: list[str] = []

    def read(split: str) -> Labelled:
        columns = source.columns(split, text, label)
        if split != "train" and set(columns[1]) == {_HIDDEN}:
            raise InputError(
                f"{source.name}: split {source.splits[split]} has no labels ({label} is {_HIDDEN} in all examples); "
                f"use a labelled split, such as {'test' if split == 'val' else 'val'}."
            )
        for number, (words, index) in enumerate(zip(*columns, strict=True)):
            if is_blank(words):
                raise InputError(f"{source.at(split, number)}: empty {text}.")
            if not 0 <= index < len(names):
                raise InputError(f"{source.at(split, number)}: no label ({label} is {index}).")
        examples = Labelled(columns[0], [names[index] for index in columns[1]])
        if split == "train":
            check_classes(examples.labels, f"{source.name}, split train")
            train_labels[:] = sorted(set(examples.labels))
        else:
            check_labels(examples.labels, train_labels or read("train").labels, lambda number: source.at(split, number))
        return examples

    return LabelledData, read, {"tokenizer": "words"}


def _text_reading(source: _Source) -> _Reading | None:
    """Returns the reader of plain texts, or `None` for other data."""
    texts = source.keys("Text")
    key = "text" if "text" in texts else next(iter(source.features), "")
    if key not in texts or source.keys("ClassLabel") or (key != "text" and len(source.features) > 1):
        return None

    def read(split: str) -> Texts:
        (texts,) = source.columns(split, key)
        for number, text in enumerate(texts):
            if is_blank(text):
                raise InputError(f"{source.at(split, number)}: empty {key}.")
        return Texts([line for text in texts for line in lines_of(text)] if source.is_one_text else texts)

    return TextData, read, {}


def _with_last_tenth(read: Callable[[str], Texts], where: str) -> Callable[[str], Texts]:
    """Returns `Dataset.load_split` for one continuous text without a validation split."""

    def load_split(name: str) -> Texts:
        if name == "test":
            return read(name)
        lines = read("train").texts
        if len(lines) == 1:
            raise InputError(f"{where}: a text of one line is too short to hold out a tenth; provide a val split.")
        cut = len(lines) - max(len(lines) // SHARE, 1)
        return Texts(lines[:cut] if name == "train" else lines[cut:])

    return load_split


def _parse(spec: str) -> tuple[str, str]:
    """Returns the name or folder and the languages of a SPEC; a version, `lm1b:1.1.0`, belongs to the name."""
    rest = spec.partition(":")[2]
    name, _, languages = rest.rpartition(":")
    if Path(rest).expanduser().is_dir() or not name or "-" not in languages:
        name, languages = rest, ""
    if not name:
        raise InputError(f"Malformed data SPEC {spec!r}; expected {FORM}, such as tfds:wmt14_translate/de-en:de-en.")
    return name, languages


def _open(name: str) -> Any:
    """Returns TFDS's builder of a dataset, prepared or not."""
    import tensorflow_datasets as tfds
    from google.protobuf.json_format import ParseError

    folder = Path(name).expanduser()
    if (folder / _INFO).is_file():
        try:
            return tfds.builder_from_directory(folder)
        except (OSError, ValueError, TypeError, ParseError) as error:  # Its files are missing or damaged.
            raise InputError(f"{folder} is not a prepared dataset ({_first_line(error)}).") from error
    if folder.is_dir() or name[0] in "./~":
        raise InputError(f"{folder}: no {_INFO} in it; pass the folder of one version, such as ag_news_subset/1.0.0.")
    return _named(tfds, name)


def _named(tfds: Any, name: str) -> Any:
    """Returns the builder of a dataset by its name."""
    dataset, _, config = name.partition(":")[0].partition("/")
    if dataset not in (available := tfds.list_builders(with_community_datasets=False)):
        if difflib.get_close_matches(dataset, available, cutoff=0.5):
            raise unknown_name("TFDS dataset", dataset, available)
        raise InputError(f"Unknown TFDS dataset {dataset!r}, and no such folder. Names: {_CATALOG}.")
    configs = tfds.builder_cls(dataset).builder_configs
    if config and config not in configs:
        if not configs:
            raise InputError(f"The TFDS dataset {dataset} takes no configuration. Received: {name!r}.")
        raise unknown_name(f"configuration of {dataset}", config, configs)
    try:
        return tfds.builder(name)
    except (ValueError, AssertionError, ImportError, OSError) as error:  # An unknown version fails an assertion.
        raise InputError(f"TFDS cannot open {name!r} ({_first_line(error)}).") from error


def _prepare(name: str, builder: Any) -> None:
    """Downloads and prepares a dataset, with a note on standard error."""
    print(f"{name} is not in {builder.data_dir} yet: TFDS downloads and prepares it", file=sys.stderr, flush=True)
    try:
        # TFDS reports progress on either stream; standard output is for results.
        with contextlib.redirect_stdout(sys.stderr), _few_retries():
            builder.download_and_prepare()
    except _failures_of_a_download() as error:
        raise InputError(
            f"{name} cannot be downloaded and prepared ({_first_line(error)}). "
            "Prepare it on a machine with a network, and pass its folder: tfds:DIR."
        ) from error


@contextlib.contextmanager
def _few_retries() -> Iterator[None]:
    """Limits TFDS's retries of downloads to a few seconds; without a network its ten retries take three minutes."""
    from tensorflow_datasets.core.download import downloader

    log = logging.getLogger("urllib3.connectionpool")
    saved = downloader.MAX_RETRIES, log.level
    downloader.MAX_RETRIES = _RETRIES
    log.setLevel(logging.ERROR)  # repeated in the last failure
    try:
        yield
    finally:
        downloader.MAX_RETRIES = saved[0]
        log.setLevel(saved[1])


def _failures_of_a_download() -> tuple[type[Exception], ...]:
    """Returns the exceptions of TFDS that a user can fix: no network, space or package, or unexpected files."""
    from tensorflow_datasets.core.download import download_manager, extractor, util

    kinds = [OSError, ImportError, ValueError, AssertionError, RuntimeError, util.DownloadError]
    kinds += [download_manager.NonMatchingChecksumError, extractor.ExtractError, extractor.UnsafeArchiveError]
    if importlib.util.find_spec("tensorflow"):
        import tensorflow as tf

        kinds.append(tf.errors.OpError)  # TFDS writes its files with TensorFlow.
    return tuple(kinds)


def _examples(builder: Any, split: str, keys: tuple[str, ...]) -> Iterator[list[Any]]:
    """Yields the values of some features of each example of a split, in the order of its files.

    Raises:
        InputError: If a file is damaged, has another number of examples than in `dataset_info.json`, or has a format
            that cannot be read.
    """
    kind = builder.info.file_format
    if kind is not None and kind.value != "tfrecord":
        yield from _source_examples(builder, split, keys)
        return
    # TFDS itself would read these with TensorFlow.
    from google.protobuf.message import DecodeError
    from tensorflow_datasets.proto import tf_example_pb2

    info = builder.info.splits[split]
    for path, expected in zip(info.filepaths, info.shard_lengths, strict=True):
        number = 0
        for number, record in enumerate(read_records(Path(path)), start=1):
            try:
                features = tf_example_pb2.Example.FromString(record).features.feature
                values = [_value(features[key]) for key in keys]
            except (DecodeError, IndexError) as error:
                raise InputError(f"{path}: record {number - 1} is not a valid example; the file is damaged.") from error
            yield values
        _check_count(str(path), number, expected)


def _source_examples(builder: Any, split: str, keys: tuple[str, ...]) -> Iterator[list[Any]]:
    """Yields the same from files that TFDS reads itself, without TensorFlow."""
    number, where = 0, f"{builder.info.full_name}, split {split}"
    try:
        for number, example in enumerate(builder.as_data_source(split), start=1):
            values = [example[key] for key in keys]
            if any(value is None for value in values):
                raise InputError(f"{where}: example {number - 1} is incomplete; its file is damaged.")
            yield values
    except NotImplementedError as error:
        kind = builder.info.file_format.value
        raise InputError(f"{builder.name}: files of format {kind} cannot be read; use another format.") from error
    except RuntimeError as error:  # raised by array_record
        raise InputError(f"{where}: a file is damaged ({_first_line(error)}).") from error
    _check_count(where, number, builder.info.splits[split].num_examples)


def _check_count(where: str, count: int, expected: int) -> None:
    if count != expected:
        raise InputError(f"{where}: {count} examples, but {_INFO} has {expected}; the data are damaged.")


def _value(feature: Any) -> bytes | int:
    """Returns the only value of a `tf.train.Feature`."""
    value: bytes | int = feature.bytes_list.value[0] if feature.bytes_list.value else feature.int64_list.value[0]
    return value


@contextlib.contextmanager
def _tensorflow_in_reach() -> Iterator[None]:
    """Unblocks the import of TensorFlow: TFDS takes the block of `zoo.runtime.startup` for a loaded TensorFlow."""
    blocked = sys.modules.get("tensorflow", True) is None
    if blocked:
        del sys.modules["tensorflow"]
    try:
        yield
    finally:
        if blocked:
            sys.modules.setdefault("tensorflow", None)  # type: ignore[arg-type]


def _first_line(error: Exception) -> str:
    """Returns the type of an error and the first line of its message, shortened."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}".removesuffix(": ")
