"""Saves a model that was trained in Python as a work directory."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from zoo.errors import InputError
from zoo.registry import ModelSpec, get_spec, list_models
from zoo.text import Tokenizer
from zoo.workdir import WorkDir, new_folder

UNKNOWN_DATA = "python"
"""The SPEC of data that was not read by a command."""


def save_run(
    path: str | os.PathLike[str],
    model: keras.Model,
    tokenizers: Tokenizer | Sequence[Tokenizer],
    classes: Sequence[str] | None = None,
) -> None:
    """See `zoo.save_run`."""
    spec = _spec_of(model)
    by_name = _tokenizers_by_name(spec, model, tokenizers)
    data: dict[str, Any] = {"spec": UNKNOWN_DATA}
    if spec.task == "classifier":
        data["classes"] = _checked_classes(model, classes)
    elif classes is not None:
        raise InputError(f"`classes` is only for classifiers. Received: {classes!r} for {spec.name}, {spec.task}.")
    with new_folder(Path(path)) as temporary:
        _write(WorkDir(temporary), spec, model, by_name, data)


def _spec_of(model: keras.Model) -> ModelSpec:
    """Returns the spec with the model's name, or else the first spec of its class."""
    specs = {name: spec for name in list_models() if (spec := get_spec(name)).load_class() is type(model)}
    if specs:
        return specs.get(model.name, next(iter(specs.values())))
    raise InputError(
        f"`model` must be a named model, as zoo.create_model returns it. Received: {type(model).__name__}."
    )


def _tokenizers_by_name(
    spec: ModelSpec, model: Any, tokenizers: Tokenizer | Sequence[Tokenizer]
) -> dict[str, Tokenizer]:
    """Returns the tokenizers by the names of their files, checked against the model's vocabularies."""
    listed: list[Any] = list(tokenizers) if isinstance(tokenizers, (list, tuple)) else [tokenizers]
    names = ("source", "target") if spec.task == "seq2seq" else ("text",)
    if len(listed) != len(names) or not all(isinstance(tokenizer, Tokenizer) for tokenizer in listed):
        expected = f"`tokenizers` of {spec.name} must be the {' and '.join(names)} tokenizer of zoo.text"
        raise InputError(f"{expected}, such as WordTokenizer.train(texts, vocab_size). Received: {tokenizers!r}.")
    by_name = dict(zip(names, listed, strict=True))
    for name, tokenizer in by_name.items():
        size = getattr(model, "vocab_size" if name == "text" else f"{name}_vocab_size")
        if size != tokenizer.vocab_size:
            raise InputError(f"The {name} tokenizer has {tokenizer.vocab_size} tokens; the model has {size}.")
    return by_name


def _checked_classes(model: Any, classes: Sequence[str] | None) -> list[str]:
    labels = [] if classes is None or isinstance(classes, str) else list(classes)
    if len(set(labels)) != model.num_classes or not all(isinstance(label, str) for label in labels):
        raise InputError(f"`classes` must be {model.num_classes} different labels. Received: {classes!r}.")
    return labels


def _write(
    workdir: WorkDir, spec: ModelSpec, model: Any, tokenizers: dict[str, Tokenizer], data: dict[str, Any]
) -> None:
    for name, tokenizer in tokenizers.items():
        tokenizer.save(workdir.tokenizer(name), workdir.replacing)
    with workdir.replacing(workdir.model) as file:
        model.save(file)
    config = {"model": {"name": spec.name, **model.options.to_dict()}, "data": data, "training": {}}
    workdir.write_text(workdir.config, json.dumps(config, indent=2) + "\n")
