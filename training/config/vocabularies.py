"""Resolves the settings of tokenizers that depend on the data, and trains the tokenizers, without Keras."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from training.config.options import DataConfig
from training.config.tokenizer_files import checksums, read_tokenizers, tokenizer_files
from training.data import Dataset, LabelledData, ParallelData, TextData
from zoo.text import Tokenizer, train_tokenizer

Tokenizers = dict[str, Tokenizer]
"""Tokenizers by the name of their file."""

VOCABULARY_SETTINGS = (
    "tokenizer",
    "tokenizer_sha256",
    "vocab_size",
    "shared_vocabulary",
    "lowercase",
    "normalization",
)
"""The settings of data on which tokenizers, and thus the ids of token shards, depend."""


def settle(settings: DataConfig, data: Dataset[Any]) -> DataConfig:
    """Returns the settings, with values from the data in place of automatic ones."""
    tokenizer = data.tokenizer if settings.tokenizer == "auto" else settings.tokenizer
    settled: dict[str, Any] = {"tokenizer": tokenizer}
    files = tokenizer_files(tokenizer)
    if settings.vocab_size is None and not files:
        settled["vocab_size"] = DataConfig.declared()["vocab_size"].default
    if isinstance(data, ParallelData) and settings.shared_vocabulary is None:
        settled["shared_vocabulary"] = len(files) == 1 if files else data.shared_vocabulary
    if isinstance(data, LabelledData):
        settled |= {"classes": data.classes, "parts": list(data.parts)}
    return dataclasses.replace(settings, **settled)


def suggested(recipe: Mapping[str, Any], requested: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of data that a recipe adds to the requested ones.

    With tokenizers from files, the recipe's settings of vocabularies do not apply.
    """
    if not tokenizer_files(requested.get("tokenizer", "")):
        return dict(recipe)
    others = {key: value for key, value in recipe.items() if key not in VOCABULARY_SETTINGS}
    return {**others, "vocab_size": None}


def with_files(settings: DataConfig, task: str) -> DataConfig:
    """Returns the settings of a new run, with checksums and sizes from its tokenizer files, if it has any.

    Raises:
        InputError: See `read_tokenizers`.
    """
    if not tokenizer_files(settings.tokenizer):
        return settings
    sizes = [tokenizer.vocab_size for tokenizer in read_tokenizers(settings.to_dict(), task).values()]
    return dataclasses.replace(
        settings,
        tokenizer_sha256=checksums(settings.tokenizer),
        vocab_size=max(sizes) if settings.vocab_size is None else settings.vocab_size,
    )


def is_one_text(settings: DataConfig, data: Dataset[Any]) -> bool:
    """Returns whether data are one continuous text of characters, including line breaks."""
    return isinstance(data, TextData) and data.joined and settings.tokenizer == "chars"


def make_tokenizers(settings: DataConfig, data: Dataset[Any]) -> Tokenizers:
    """Returns tokenizers trained on the training split by settled settings, or those in the settings' files.

    Raises:
        InputError: If the data are too few for a vocabulary, or a file cannot be read.
    """
    if tokenizer_files(settings.tokenizer):
        return read_tokenizers(settings.to_dict(), data.task)
    learn, examples = _learner(settings), data.split("train")
    if isinstance(data, ParallelData):
        if settings.shared_vocabulary:
            shared = learn([*examples.source, *examples.target])
            return {"source": shared, "target": shared}
        return {"source": learn(examples.source), "target": learn(examples.target)}
    return {"text": learn(["\n".join(examples.texts) + "\n"] if is_one_text(settings, data) else examples.texts)}


def _learner(settings: DataConfig) -> Callable[[Sequence[str]], Tokenizer]:
    """Returns the function that trains a tokenizer on lines."""
    size = None if settings.tokenizer == "chars" else settings.vocab_size
    return lambda lines: train_tokenizer(settings.tokenizer, lines, size, settings.lowercase, settings.normalization)
