"""Attention models that can be understood, trained and served.

Listing models is instant; Keras is imported on first access to a model or a layer.
"""

import zoo.runtime.signals  # noqa: F401  isort: skip  # before the imports that take a while

import importlib
import os
from collections.abc import Sequence
from typing import Any

import zoo.models as models
from zoo.errors import InputError
from zoo.presets import list_presets, workdir_path
from zoo.registry import ModelSpec, create_model, get_spec, list_models, register_model

__all__ = [
    "Cost",
    "Diagram",
    "ModelSpec",
    "Trace",
    "cost",
    "create_model",
    "draw_model",
    "draw_paths",
    "draw_positions",
    "draw_reach",
    "get_spec",
    "layers",
    "list_models",
    "list_presets",
    "load",
    "load_model",
    "models",
    "position_terms",
    "reach",
    "register_model",
    "save_run",
    "trace",
]
__version__ = "0.3.0"


def load(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    source_language: str | None = None,
    target_language: str | None = None,
    draft: str | os.PathLike[str] | None = None,
) -> Any:
    """Returns the trained model of a work directory, a `zoo.inference.Run` of its task.

    Args:
        path: A work directory that `training.train` wrote, or `"preset:NAME"` (see `list_presets`); or a list of those
            of translators with the same tokenizers, which then choose every token together.
        source_language: The code of the source language, for a translator of many languages, such as NLLB. Default:
            that of the work directory.
        target_language: The code of the target language, likewise.
        draft: The work directory of a smaller Transformer with the same tokenizers, which drafts tokens for this one
            (speculative decoding) in calls with the option `draft_length`, as in `run.translate(texts,
            draft_length=4)`; not on JAX. The answers stay the same.

    Raises:
        InputError: (a `ValueError`) If `path` is no work directory, or its training has not finished; if the work
            directories cannot form an ensemble; if the model does not have the language; or if the other model cannot
            draft for this one.
    """
    paths = workdir_path(path) if isinstance(path, str | os.PathLike) else [workdir_path(folder) for folder in path]
    if draft is not None and not isinstance(draft, str | os.PathLike):
        raise InputError(f"`draft` must be one work directory. Received: {draft!r}.")
    drafting = None if draft is None else workdir_path(draft)
    return importlib.import_module("zoo.inference").load_run(paths, source_language, target_language, drafting)


def load_model(path: str | os.PathLike[str]) -> Any:
    """Returns the `keras.Model` of a `.keras` file with a named model, or of a work directory.

    `keras.models.load_model` requires that the model's class has been imported before.

    Args:
        path: The file, or the work directory.

    Raises:
        InputError: (a `ValueError`) If there is no such file, or it contains no model of the zoo.
    """
    return importlib.import_module("zoo.inference").load_model(path)


def save_run(path: str | os.PathLike[str], model: Any, tokenizers: Any, classes: Sequence[str] | None = None) -> Any:
    """Writes a named model with its tokenizers as a work directory, which `load` and all commands read.

    Args:
        path: The work directory, which must not exist or be empty.
        model: A model from `create_model`, trained by `fit` or otherwise.
        tokenizers: The tokenizer of its texts, from `zoo.text`; for a translator those of source and target.
        classes: For a classifier, the labels in the order of its outputs.

    Returns:
        The run, the same as `load(path)`.

    Raises:
        InputError: (a `ValueError`) If the model is not one of the zoo, tokenizers or classes do not match it, or
            `path` exists and is not empty. Nothing is written then.
    """
    importlib.import_module("zoo.inference.saving").save_run(path, model, tokenizers, classes)
    return load(path)


_INSPECTION = (
    *("Cost", "Diagram", "Trace", "cost", "draw_model", "draw_paths", "draw_positions", "draw_reach"),
    *("position_terms", "reach", "trace"),
)


def __getattr__(name: str) -> Any:
    if name == "layers":
        return importlib.import_module("zoo.layers")
    if name in _INSPECTION:
        return getattr(importlib.import_module("zoo.inspection"), name)
    raise AttributeError(f"module 'zoo' has no attribute {name!r}")
