"""Parallel text: pairs of source and target sentences, and the folders they are read from."""

import codecs
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from zoo.errors import InputError, unknown_name

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Pairs:
    """Sentences and their counterparts, line by line.

    Attributes:
        source: What the model reads.
        target: What it should write; as long as `source`.
    """

    source: list[str]
    target: list[str]

    def __len__(self) -> int:
        """Returns the number of pairs."""
        return len(self.source)


@dataclass(frozen=True)
class ParallelData:
    """A sequence-to-sequence dataset whose splits are made when first asked for.

    Attributes:
        spec: The data SPEC it came from.
        tokenizer: The kind of tokenizer that suits it, `"chars"` or `"subword"`.
        shared_vocabulary: Whether source and target use one tokenizer by default.
        load_split: Makes the split of a given name; called at most once for each.
        task: Always `"seq2seq"`.
    """

    spec: str
    tokenizer: str
    shared_vocabulary: bool
    load_split: Callable[[str], Pairs] = field(repr=False, compare=False)
    task: str = "seq2seq"
    _made: dict[str, Pairs] = field(default_factory=dict, init=False, repr=False, compare=False)

    def split(self, name: str) -> Pairs:
        """Returns the pairs of one split; the same object at every call.

        Args:
            name: `"train"`, `"val"` or `"test"`.

        Raises:
            InputError: The name is another, or the data behind the split is bad.
        """
        if name not in SPLITS:
            raise unknown_name("split", name, SPLITS)
        if name not in self._made:
            self._made[name] = self.load_split(name)
        return self._made[name]


def load_parallel(spec: str) -> ParallelData:
    """Opens a folder of parallel text.

    `DIR/{train,val,test}.SRC` and `.TGT` hold one UTF-8 sentence a line. That all six files exist is
    checked here, so that a run cannot end in a missing test set; their lines are checked when a split
    is first used.

    Args:
        spec: `text:DIR:SRC-TGT`, such as `text:data/multi30k:en-de`.

    Returns:
        The dataset; by default one subword vocabulary serves both languages.

    Raises:
        InputError: The SPEC is malformed, or the folder or a file is missing.
    """
    directory, source, target = _parse(spec)
    if not directory.is_dir():
        raise InputError(f"{directory}: no such folder. Received: {spec!r}; expected text:DIR:SRC-TGT.")
    for split in SPLITS:
        for language in (source, target):
            path = directory / f"{split}.{language}"
            if not path.is_file():
                raise InputError(f"{path}: no such file. {spec!r} needs train, val and test in both languages.")

    def load_split(name: str) -> Pairs:
        return read_pairs(directory / f"{name}.{source}", directory / f"{name}.{target}")

    return ParallelData(spec, tokenizer="subword", shared_vocabulary=True, load_split=load_split)


def read_pairs(source: Path, target: Path) -> Pairs:
    """Reads two files of which line n of one translates line n of the other.

    A pair of which both lines are blank is kept: it says that nothing translates to nothing.

    Args:
        source: File of the source sentences.
        target: File of the target sentences.

    Raises:
        InputError: With file and line: invalid UTF-8, an empty file, unequal line counts, or a line that
            is blank on one side only.
    """
    pairs = Pairs(read_lines(source), read_lines(target))
    for number, (left, right) in enumerate(zip_longest(pairs.source, pairs.target), start=1):
        if left is None or right is None:
            longer, shorter = (source, target) if right is None else (target, source)
            raise InputError(
                f"{longer}:{number}: no counterpart in {shorter}: unequal line counts, "
                f"{len(pairs.source)} in {source.name} and {len(pairs.target)} in {target.name}."
            )
        if bool(left.strip()) != bool(right.strip()):
            blank, other = (target, source) if left.strip() else (source, target)
            raise InputError(f"{blank}:{number}: blank line, but {other.name} has text there. Fill or drop the pair.")
    return pairs


def read_lines(path: Path) -> list[str]:
    r"""Reads the lines of a UTF-8 file.

    Lines end at `\n` alone, as `wc -l` counts them: U+2028, form feeds and the like stay inside a line,
    where `str.splitlines` would break the pairing. A `\r` before the `\n` and a byte-order mark at the
    start of the file are left out.

    Args:
        path: The file.

    Raises:
        InputError: The file is missing, empty, or not UTF-8; the message names the line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data:
        raise InputError(f"{path}:1: empty file; a split needs at least one line.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise InputError(f"{path}:{number}: invalid UTF-8 (byte 0x{byte:02x}). Convert the file to UTF-8.") from error
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _parse(spec: str) -> tuple[Path, str, str]:
    """Splits `text:DIR:SRC-TGT`; only the last colon counts, so DIR may hold others."""
    directory, _, languages = spec.removeprefix("text:").rpartition(":")
    source, _, target = languages.partition("-")
    if not (directory and source and target) or "-" in target or "/" in languages:
        raise InputError(f"Malformed data SPEC {spec!r}; expected text:DIR:SRC-TGT, such as text:data/multi30k:en-de.")
    return Path(directory), source, target
