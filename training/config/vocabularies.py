"""From settings to tokenizers: what they leave to the data, and what the tokenizers learn from. Without Keras."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from training.config.options import DataConfig
from training.data import Dataset, LabelledData, ParallelData, TextData
from zoo.text import Tokenizer, train_tokenizer

Tokenizers = dict[str, Tokenizer]
"""Tokenizers by the name of their file."""

VOCABULARY_SETTINGS = ("tokenizer", "vocab_size", "shared_vocabulary", "lowercase", "normalization")
"""The settings of data that tokenizers depend on, and so the ids of token shards."""


def settle(settings: DataConfig, data: Dataset[Any]) -> DataConfig:
    """Returns the settings with what they leave to the data."""
    tokenizer = data.tokenizer if settings.tokenizer == "auto" else settings.tokenizer
    settled: dict[str, Any] = {"tokenizer": tokenizer}
    if isinstance(data, ParallelData) and settings.shared_vocabulary is None:
        settled["shared_vocabulary"] = data.shared_vocabulary
    if isinstance(data, LabelledData):
        settled |= {"classes": data.classes, "parts": list(data.parts)}
    return dataclasses.replace(settings, **settled)


def is_one_text(settings: DataConfig, data: Dataset[Any]) -> bool:
    """Returns whether data are one running text of characters, the line break among them."""
    return isinstance(data, TextData) and data.joined and settings.tokenizer == "chars"


def make_tokenizers(settings: DataConfig, data: Dataset[Any]) -> Tokenizers:
    """Returns tokenizers trained on the training split, as settled settings say.

    Raises:
        InputError: If the data do not suffice for a vocabulary.
    """
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
