"""Datasets, opened by their SPEC: `load_data("dates")`, `load_data("text:data/multi30k:en-de")`."""

from collections.abc import Callable

from training.data.dataset import SPLITS, Dataset, Labelled, LabelledData, Pairs, ParallelData, TextData, Texts
from training.data.dates import load_dates
from training.data.labelled import load_labelled
from training.data.lines import load_lines
from training.data.parallel import load_parallel
from training.data.senses import load_senses
from training.data.sums import load_sums
from training.data.tfds import FORM, load_tfds
from zoo.errors import InputError, unknown_name

__all__ = [
    "FORMS",
    "SPLITS",
    "Dataset",
    "Labelled",
    "LabelledData",
    "Pairs",
    "ParallelData",
    "TextData",
    "Texts",
    "load_data",
]

FORMS = {
    "dates": "dates",
    "senses": "senses",
    "sums": "sums",
    "text": "text:DIR:SRC-TGT",
    "tsv": "tsv:DIR",
    "lines": "lines:DIR",
    "tfds": FORM,
}
"""What a SPEC of each kind looks like."""

_GENERATED: dict[str, Callable[[int], Dataset]] = {"dates": load_dates, "senses": load_senses, "sums": load_sums}


def load_data(
    spec: str, seed: int = 0, max_examples: int = 0, check_task: Callable[[str], None] = lambda task: None
) -> Dataset:
    """Opens the dataset that a SPEC names.

    Args:
        spec: `dates`, `senses`, `sums`, `text:DIR:SRC-TGT`, `tsv:DIR`, `lines:DIR` or `tfds:NAME[/CONFIG][:SRC-TGT]`.
        seed: Seeds what is generated, and draws what is held out where there is no validation split.
        max_examples: Training examples of a `tfds:` dataset that are read; 0 for all.
        check_task: Called with the task of the data, before anything is downloaded; may raise.

    Returns:
        The dataset; its splits are read or generated when first used.

    Raises:
        InputError: The SPEC is unknown (the close ones are named) or malformed, a file is missing, or `max_examples` is
            given for other data, which are read whole.
    """
    kind = spec.partition(":")[0]
    if kind == "tfds":
        return load_tfds(spec, seed, max_examples, check_task)
    data = _load(kind, spec, seed, max_examples)
    check_task(data.task)
    return data


def _load(kind: str, spec: str, seed: int, max_examples: int) -> Dataset:
    """Opens a dataset that is there already."""
    if max_examples:
        raise InputError(
            f"data.max_examples is for tfds: data; {spec} is read whole. Received: data.max_examples={max_examples}."
        )
    if kind in _GENERATED:
        if spec != kind:
            raise InputError(f"The data SPEC {kind!r} takes no argument. Received: {spec!r}.")
        return _GENERATED[kind](seed)
    if kind == "text":
        return load_parallel(spec)
    if kind == "tsv":
        return load_labelled(spec, seed)
    if kind == "lines":
        return load_lines(spec)
    *forms, last = FORMS.values()
    raise InputError(f"{unknown_name('data SPEC', kind, FORMS)} Expected {', '.join(forms)} or {last}.")
