"""Corpora encoded by `training.prepare`."""

from collections.abc import Callable
from typing import Any

from training.data.dataset import Dataset, Labelled, LabelledData, Pairs, ParallelData, Split, TextData, Texts
from training.data.files import folder_of
from training.data.registry import register_data
from training.data.shards.manifest import Manifest
from training.data.shards.store import TokenShards, open_shards
from zoo.errors import InputError

FORM = "prepared:DIR"


@register_data("prepared", FORM)
def load_prepared(spec: str, seed: int = 0) -> Dataset[Any]:
    """Opens token shards, such as `prepared:data/wmt14`; task and tokenizers are those of the data they were made from.

    Raises:
        InputError: The folder contains no token shards, or they are damaged.
    """
    shards = open_shards(folder_of(spec, FORM))
    task, described = shards.manifest.task, shards.manifest.dataset
    options: dict[str, Any] = {"tokenizer": shards.manifest.settings["tokenizer"], "splits": shards.splits}
    options["load_split"] = _reader(shards)
    if task == "seq2seq":
        shared = bool(shards.manifest.settings["shared_vocabulary"])
        return ParallelData(spec=spec, shards=shards, shared_vocabulary=shared, **options)
    if task == "classifier":
        parts, sizes = tuple(described["parts"]), described["part_sizes"]
        return LabelledData(spec=spec, shards=shards, parts=parts, part_sizes=lambda name: list(sizes[name]), **options)
    if task == "language_model":
        joined, prompt_end = described["joined"], described["prompt_end"]
        return TextData(spec=spec, shards=shards, joined=joined, prompt_end=prompt_end, **options)
    raise InputError(f"{shards.path} contains data of the unknown task {task!r}.")


def _reader(shards: TokenShards) -> Callable[[str], Split]:
    """Returns the function `Dataset.load_split` of a dataset in token shards."""

    def read(split: str) -> Split:
        if shards.manifest.task == "seq2seq":
            return Pairs(shards.texts(split, "source"), shards.texts(split, "target"))  # type: ignore[arg-type]
        if shards.manifest.task == "classifier":
            return Labelled(shards.texts(split, "text"), shards.labels(split))  # type: ignore[arg-type]
        return Texts(shards.texts(split, "text"))  # type: ignore[arg-type]

    return read


def original_spec(spec: str) -> str:
    """Returns the SPEC of the data that token shards were prepared from; other SPECs are returned unchanged."""
    return _manifest(spec).spec if _is_prepared(spec) else spec


def fixed_settings(spec: str) -> dict[str, Any]:
    """Returns the settings of data that are fixed by token shards; none for other data."""
    return dict(_manifest(spec).settings) if _is_prepared(spec) else {}


def _is_prepared(spec: str) -> bool:
    return spec.partition(":")[0] == FORM.partition(":")[0]


def _manifest(spec: str) -> Manifest:
    return open_shards(folder_of(spec, FORM)).manifest
