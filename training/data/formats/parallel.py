"""Parallel text: pairs of source and target sentences, and the folders they are read from."""

from itertools import zip_longest
from pathlib import Path

from training.data.dataset import SPLITS, Pairs, ParallelData
from training.data.files import check_folder, read_lines
from training.data.registry import register_data
from zoo.errors import InputError

FORM = "text:DIR:SRC-TGT"


@register_data("text", FORM)
def load_parallel(spec: str, seed: int = 0) -> ParallelData:
    """Opens a folder of parallel text, such as `text:data/multi30k:en-de`; by default one subword vocabulary for both.

    `DIR/{train,val,test}.SRC` and `.TGT` hold one UTF-8 sentence a line. That all six files exist is
    checked here, so that a run cannot end in a missing test set; their lines are checked when a split
    is first used.

    Raises:
        InputError: The SPEC is malformed, or the folder or a file is missing.
    """
    directory, source, target = _parse(spec)
    names = [f"{split}.{language}" for split in SPLITS for language in (source, target)]
    check_folder(directory, names, spec, FORM, "train, val and test in both languages")

    def load_split(name: str) -> Pairs:
        return read_pairs(directory / f"{name}.{source}", directory / f"{name}.{target}")

    return ParallelData(spec=spec, tokenizer="subword", shared_vocabulary=True, load_split=load_split)


def read_pairs(source: Path, target: Path) -> Pairs:
    """Reads two files of which line n of one translates line n of the other.

    A pair of which both lines are blank is kept: it says that nothing translates to nothing.

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


def _parse(spec: str) -> tuple[Path, str, str]:
    """Splits `text:DIR:SRC-TGT`; only the last colon counts, so DIR may hold others."""
    directory, _, languages = spec.removeprefix("text:").rpartition(":")
    source, _, target = languages.partition("-")
    if not (directory and source and target) or "-" in target or "/" in languages:
        raise InputError(f"Malformed data SPEC {spec!r}; expected {FORM}, such as text:data/multi30k:en-de.")
    return Path(directory), source, target
