"""The registry of named models: their specs, and the creation of a model by name.

This module does not import Keras, so that listing and reading specs is fast; creating a model imports its module.
"""

import dataclasses
import fnmatch
import functools
import importlib
import textwrap
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from zoo.errors import InputError, unknown_name
from zoo.options import Option, Options, read_values
from zoo.synonyms import MODELS, meant_by

ENTRY_POINTS = "attention_zoo.models"
"""Group of the entry points whose modules register models of other packages."""

_LINE = 400  # maximum length of a line in the representation of a spec


@dataclass(frozen=True)
class Paper:
    """Where an architecture was published."""

    title: str
    year: int
    url: str


@dataclass(frozen=True, repr=False)
class ModelSpec:
    """The description of a named model, available without building it.

    Args:
        name: The model's name.
        task: `"seq2seq"`, `"classifier"`, `"language_model"` or `"sentence_encoder"`.
        paper: Where the architecture was published.
        summary: One sentence.
        config: The defaults that differ from those in `options`. As an attribute: all defaults, each of which can be
            overridden in `create_model`.
        model_class: `"module:Class"` of the Keras model.
        required: Options without a default, such as vocabulary sizes; derived from `options` if there are.
        options: The declared options, with their checks and descriptions; `None` for a model with defaults only.

    Raises:
        InputError: For a default that is not in `options` (the message suggests similar ones), or is out of range.
    """

    name: str
    task: str
    paper: Paper
    summary: str
    config: Mapping[str, Any]
    model_class: str
    required: tuple[str, ...] = ()
    options: type[Options] | None = None

    def __post_init__(self) -> None:
        config = dict(self.config)
        if self.options is not None:
            object.__setattr__(self, "required", self.options.required())
            changed = read_values(self.options.declared(), config, self.name)
            config = {name: option.default for name, option in self.options.declared().items()} | changed
            config = {name: value for name, value in config.items() if name not in self.required}
        object.__setattr__(self, "config", MappingProxyType(config))

    def declared(self) -> dict[str, Option]:
        """Returns the declaration of each option in `config`, with this model's default."""
        declared = self.options.declared() if self.options else {}
        return {
            name: dataclasses.replace(declared[name], default=default) if name in declared else Option.like(default)
            for name, default in self.config.items()
        }

    def __repr__(self) -> str:
        lines = [
            f"{self.name}, {self.task}: {self.summary}",
            f"{self.paper.title} ({self.paper.year}), {self.paper.url}",
        ]
        if self.required:
            lines.append(f"needs {', '.join(self.required)}")
        lines.append(f"options: {', '.join(f'{name}={value!r}' for name, value in self.config.items())}")
        return "\n".join(textwrap.shorten(line, _LINE, placeholder=" …") for line in lines)

    def load_class(self) -> Any:
        """Imports and returns the model's class."""
        module, _, name = self.model_class.partition(":")
        return getattr(importlib.import_module(module), name)


_SPECS: dict[str, ModelSpec] = {}


def register_model(spec: ModelSpec) -> ModelSpec:
    """Adds a spec to the registry and returns it.

    Args:
        spec: The spec.

    Raises:
        ValueError: If the name is taken.
    """
    if spec.name in _SPECS:
        raise ValueError(f"A model named {spec.name!r} is registered already.")
    _SPECS[spec.name] = spec
    return spec


@functools.cache
def load_entry_points(group: str) -> None:
    """Imports the modules of other packages that register something, and warns of those that fail."""
    import importlib.metadata  # imported late, because it takes as long as the rest of `import zoo`

    for entry_point in importlib.metadata.entry_points(group=group):
        try:
            entry_point.load()
        except Exception as error:  # Foreign code may raise any exception, which must not disable our own models.
            message = f"The entry point {entry_point.value} of {group} cannot be loaded: {error!r}."
            warnings.warn(message, RuntimeWarning, stacklevel=3)


def list_models(pattern: str = "*") -> list[str]:
    """Returns the sorted names that match `pattern` (as in `fnmatch`: `*`, `?`, `[...]`).

    If none matches, common synonyms of models are accepted: `"bahdanau"`, `"luong"`, `"vaswani"`, ….
    """
    load_entry_points(ENTRY_POINTS)
    matching = fnmatch.filter(_SPECS, pattern)
    return sorted(set(matching or meant_by(pattern, MODELS, _SPECS)))


def get_spec(name: str) -> ModelSpec:
    """Returns the spec of a named model.

    Raises:
        InputError: (a `ValueError`) If there is no such name; the message suggests similar ones.
    """
    if name not in _SPECS:
        load_entry_points(ENTRY_POINTS)
    if name not in _SPECS:
        raise unknown_name("model", name, _SPECS, meant_by(name, MODELS, _SPECS))
    return _SPECS[name]


def resolve_config(name: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the complete options of a named model, given the required ones and those that differ from the spec.

    Raises:
        InputError: If an option is unknown (the message suggests similar ones) or a required one is missing.
    """
    spec = get_spec(name)
    for key in overrides:
        if key not in spec.config and key not in spec.required:
            raise unknown_name(f"option of model {name}", key, [*spec.config, *spec.required])
    missing = [key for key in spec.required if key not in overrides]
    if missing:
        raise InputError(f"Model {name!r} requires {', '.join(missing)}.")
    return {**spec.config, **overrides}


def create_model(name: str, dtype: Any = None, **config: Any) -> Any:
    """Returns a built `keras.Model` with fresh weights.

    Args:
        name: A name from `list_models()`.
        dtype: Keras dtype policy, such as `"mixed_bfloat16"`. Default: the global policy.
        **config: The required options (for seq2seq `source_vocab_size` and `target_vocab_size`) and those that
            differ from `get_spec(name).config`.

    Raises:
        InputError: (a `ValueError`) For an unknown name or option; the message suggests similar ones.
    """
    resolved = resolve_config(name, config)
    model = get_spec(name).load_class()(**resolved, name=name, dtype=dtype)
    model.build()
    return model
