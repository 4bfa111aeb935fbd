"""Labelled text, and the folders of `text<TAB>label` lines that it is read from."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from training.data.dataset import Labelled, LabelledData
from training.data.files import check_folder, folder_of, read_lines, stored
from training.data.held_out import with_held_out
from training.data.registry import register_data
from zoo.errors import InputError, unknown_name
from zoo.text.blank import is_blank

_COLUMNS = ["text", "label"]


FORM = "tsv:DIR"


@register_data("tsv", FORM)
def load_labelled(spec: str, seed: int = 0) -> LabelledData:
    """Opens a folder of labelled text, such as `tsv:data/trec`; the default tokenizer is words.

    `DIR/train.tsv`, `DIR/test.tsv` and an optional `DIR/val.tsv` begin with the line `text<TAB>label`; each other line
    is one example. Without `val.tsv`, a tenth of the training examples is held out, drawn by the seed. Missing files
    are reported here; lines are checked when a split is first used.

    Raises:
        InputError: The folder or a file is missing.
    """
    directory = folder_of(spec, FORM)
    check_folder(directory, ["train.tsv", "test.tsv"], spec, FORM, "train.tsv and test.tsv")

    @functools.cache
    def read(name: str) -> Labelled:
        path = stored(directory / f"{name}.tsv")
        examples = read_labelled(path)
        # Line 1 is the header.
        if name == "train":
            check_classes(examples.labels, f"{path}:2")
        else:
            check_labels(examples.labels, read("train").labels, lambda number: f"{path}:{number + 2}")
        return examples

    load_split = (
        read if stored(directory / "val.tsv").exists() else with_held_out(read, seed, str(directory / "train.tsv"))
    )
    return LabelledData(spec=spec, tokenizer="words", load_split=load_split)


def read_labelled(path: Path) -> Labelled:
    """Reads a file of `text<TAB>label` lines, of which the first contains the names of the columns.

    Quotes have no special meaning. Spaces around a label are removed.

    Raises:
        InputError: With file and line: another header, a line without exactly one tab, a text or label that is blank,
            invalid UTF-8, or no examples.
    """
    header, *lines = read_lines(path)
    _check_header(header, path)
    if not lines:
        raise InputError(f"{path}:2: no examples; a split needs at least one.")
    rows = [line.split("\t") for line in lines]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(_COLUMNS):
            raise InputError(f"{path}:{number}: expected one tab, between text and label. Received: {len(row) - 1}.")
        for column, value in zip(_COLUMNS, row, strict=True):
            if is_blank(value):
                raise InputError(f"{path}:{number}: empty {column}. Fill or drop the line.")
    return Labelled([text for text, _ in rows], [label.strip() for _, label in rows])


def check_classes(labels: Sequence[str], where: str) -> None:
    """Raises InputError if all training examples have the same label; `where` is the place of the first one."""
    if len(set(labels)) == 1:
        raise InputError(f"{where}: every training example is labelled {labels[0]!r}; a classifier needs two labels.")


def check_labels(labels: Sequence[str], known: Sequence[str], where: Callable[[int], str]) -> None:
    """Raises InputError for a label that training lacks; `where` returns the place of an example by its index."""
    classes = set(known)
    for number, label in enumerate(labels):
        if label not in classes:
            raise InputError(f"{where(number)}: {unknown_name('label', label, classes)} No training example has it.")


def _check_header(header: str, path: Path) -> None:
    columns = header.split("\t")
    if missing := [column for column in _COLUMNS if column not in columns]:
        named = f"column{'s' * (len(missing) - 1)} {' and '.join(map(repr, missing))}"
        raise InputError(f"{path}:1: missing {named}; line 1 must be text<TAB>label. Received: {header!r}.")
    if columns != _COLUMNS:
        raise InputError(f"{path}:1: line 1 must be text<TAB>label, no other columns. Received: {header!r}.")
