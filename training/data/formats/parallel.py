"""Parallel text: pairs of source and target sentences, in folders of text files."""

from itertools import zip_longest
from pathlib import Path

from training.data.dataset import SPLITS, Pairs, ParallelData
from training.data.files import check_folder, read_lines, stored
from training.data.registry import register_data
from zoo.errors import InputError
from zoo.text.blank import is_blank

FORM = "text:DIR:SRC-TGT"


@register_data("text", FORM)
def load_parallel(spec: str, seed: int = 0) -> ParallelData:
    """Opens a folder of parallel text, such as `text:data/multi30k:en-de`; by default one subword vocabulary for both.

    `DIR/{train,val,test}.SRC` and `.TGT` contain one UTF-8 sentence a line. Missing files are reported here, so that a
    run cannot end in a missing test set; lines are checked when a split is first used.

    Raises:
        InputError: The SPEC is malformed, or the folder or a file is missing.
    """
    directory, source, target = _parse(spec)
    names = [f"{split}.{language}" for split in SPLITS for language in (source, target)]
    check_folder(directory, names, spec, FORM, "train, val and test in both languages")

    def files(name: str) -> dict[str, Path]:
        sides = {"source": source, "target": target}
        return {side: stored(directory / f"{name}.{language}") for side, language in sides.items()}

    def load_split(name: str) -> Pairs:
        return read_pairs(**files(name))

    return ParallelData(spec=spec, tokenizer="subword", shared_vocabulary=True, load_split=load_split, line_files=files)


def read_pairs(source: Path, target: Path) -> Pairs:
    """Reads two files, in which line n of one translates line n of the other.

    A pair of two blank lines is kept.

    Raises:
        InputError: With file and line: invalid UTF-8, an empty file, unequal line counts, or a line that
            is blank on one side only.
    """
    pairs = Pairs(read_lines(source), read_lines(target))
    for number, (left, right) in enumerate(zip_longest(pairs.source, pairs.target), start=1):
        if left is None or right is None:
            raise unequal((source, len(pairs.source)), (target, len(pairs.target)))
        if is_blank(left) != is_blank(right):
            raise blank_side(number, *((source, target) if is_blank(left) else (target, source)))
    return pairs


def unequal(*files: tuple[Path, int]) -> InputError:
    """Returns the error for two files with unequal numbers of lines."""
    (shorter, count), (longer, _) = sorted(files, key=lambda file: file[1])
    (left, left_count), (right, right_count) = files
    return InputError(
        f"{longer}:{count + 1}: no counterpart in {shorter}: unequal line counts, "
        f"{left_count} in {left.name} and {right_count} in {right.name}."
    )


def blank_side(number: int, blank: Path, other: Path) -> InputError:
    """Returns the error for a line that is blank in one of two files only."""
    return InputError(f"{blank}:{number}: blank line, but {other.name} has text there. Fill or drop the pair.")


def _parse(spec: str) -> tuple[Path, str, str]:
    """Splits `text:DIR:SRC-TGT`; DIR may contain other colons."""
    directory, _, languages = spec.removeprefix("text:").rpartition(":")
    source, _, target = languages.partition("-")
    if not (directory and source and target) or "-" in target or "/" in languages:
        raise InputError(f"Malformed data SPEC {spec!r}; expected {FORM}, such as text:data/multi30k:en-de.")
    return Path(directory), source, target
