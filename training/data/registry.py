"""The registry of data formats, by the first word of their SPEC.

The modules of `training.data.formats` and of the entry points `attention_zoo.data` are imported at the first look-up.
"""

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from training.data.dataset import Dataset
from zoo.errors import InputError, unknown_name
from zoo.registry import load_entry_points

ENTRY_POINTS = "attention_zoo.data"
"""Group of the entry points whose modules register data formats of other packages."""

Loader = TypeVar("Loader", bound=Callable[..., Dataset[Any]])


@dataclass(frozen=True)
class DataFormat:
    """A registered kind of data; see `register_data`."""

    form: str
    load: Callable[..., Dataset[Any]]
    downloads: bool


_FORMATS: dict[str, DataFormat] = {}


def register_data(kind: str, form: str, *, downloads: bool = False) -> Callable[[Loader], Loader]:
    """Returns a decorator that registers a loader, which is called as `load(spec, seed)` and returns a `Dataset`.

    Args:
        kind: The first word of such a SPEC, before its colon.
        form: The form of a SPEC, such as `"csv:FILE"`; the kind alone if it takes no argument.
        downloads: Whether it is called as `load(spec, seed, max_examples, check_task)`, so that it can check the task
            before any download and read the first examples only; see `load_data`.

    Raises:
        ValueError: If the kind is already registered.

    Example:
        >>> from training.data import Labelled, LabelledData, register_data
        >>> @register_data("parity", "parity")
        ... def load_parity(spec, seed):
        ...     split = Labelled(["1", "2"], ["odd", "even"])
        ...     return LabelledData(spec=spec, tokenizer="chars", load_split=lambda name: split)
    """

    def register(load: Loader) -> Loader:
        if kind in _FORMATS:
            raise ValueError(f"Data of the kind {kind!r} are registered already.")
        _FORMATS[kind] = DataFormat(form, load, downloads)
        return load

    return register


@functools.cache
def _load_builtin_formats() -> None:
    formats = importlib.import_module("training.data.formats")
    for module in pkgutil.iter_modules(formats.__path__, f"{formats.__name__}."):
        importlib.import_module(module.name)


def data_formats() -> dict[str, DataFormat]:
    """Returns the registered kinds of data by name."""
    _load_builtin_formats()
    load_entry_points(ENTRY_POINTS)
    return dict(sorted(_FORMATS.items()))


def spec_forms() -> str:
    """Returns the form of a SPEC of each kind, for help texts."""
    return ", ".join(data_format.form for data_format in data_formats().values())


def data_format(spec: str) -> DataFormat:
    """Returns the format of a data SPEC; raises InputError, with close names, if it is unknown."""
    if spec != spec.encode(errors="replace").decode():  # file names may be any bytes; `config.json` is UTF-8
        raise InputError(f"A data SPEC must be UTF-8; rename the folder. Received: {ascii(spec)}.")
    kind = spec.partition(":")[0]
    formats = data_formats()
    if kind not in formats:
        message = unknown_name("data SPEC", kind, formats)
        raise InputError(f"{message} Expected one of {spec_forms()}, or a format registered by an --import module.")
    return formats[kind]


def load_data(
    spec: str, seed: int = 0, max_examples: int = 0, check_task: Callable[[str], None] = lambda task: None
) -> Dataset[Any]:
    """Opens the dataset of a SPEC.

    Args:
        spec: A data SPEC, such as `dates` or `text:DIR:SRC-TGT`; `spec_forms` returns all forms.
        seed: Seed of generated data, and of the examples held out if there is no validation split.
        max_examples: Training examples of downloaded data that are read; 0 for all.
        check_task: Called with the task of the data, before any download; may raise.

    Returns:
        The dataset; its splits are read or generated when first used.

    Raises:
        InputError: The SPEC is unknown (close names are suggested) or malformed, a file is missing, or `max_examples`
            is set for data that are not downloaded.
    """
    kind = data_format(spec)
    if kind.downloads:
        return kind.load(spec, seed, max_examples, check_task)
    if max_examples:
        raise InputError(
            f"data.max_examples is for tfds: data; {spec} is read whole. Received: data.max_examples={max_examples}."
        )
    if ":" not in kind.form and spec != kind.form:
        raise InputError(f"The data SPEC {kind.form!r} takes no argument. Received: {spec!r}.")
    data = kind.load(spec, seed)
    check_task(data.task)
    return data
