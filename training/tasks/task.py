"""The interface between the one training loop and the kinds of tasks."""

import abc
import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import keras

from training.config.options import DataConfig
from training.data import Dataset
from training.data.batching import Batches
from training.optimization.cross_entropy import perplexity
from zoo.text import Tokenizer, train_tokenizer

Tokenizers = dict[str, Tokenizer]
DataType = TypeVar("DataType", bound=Dataset[Any])


class Task(abc.ABC, Generic[DataType]):
    """A kind of task: how its data become batches, and what is measured after training.

    Attributes:
        name: As in `ModelSpec.task` and `Dataset.task`.
        unit: What an example is called, in the plural.
        tokenizer_names: The names of the files of its tokenizers.
    """

    name: str
    unit: str
    tokenizer_names: tuple[str, ...] = ("text",)

    def settle(self, settings: DataConfig, data: DataType) -> DataConfig:
        """Returns the settings with what they leave to the data."""
        tokenizer = data.tokenizer if settings.tokenizer == "auto" else settings.tokenizer
        return dataclasses.replace(settings, tokenizer=tokenizer)

    def learner(self, settings: DataConfig) -> Callable[[Sequence[str]], Tokenizer]:
        """Returns the function that trains a tokenizer on lines, as the settings say."""
        size = None if settings.tokenizer == "chars" else settings.vocab_size
        return lambda lines: train_tokenizer(settings.tokenizer, lines, size, settings.lowercase)

    @abc.abstractmethod
    def make_tokenizers(self, settings: DataConfig, data: DataType) -> Tokenizers:
        """Returns tokenizers trained on the training split, by the name of their file."""

    @abc.abstractmethod
    def model_options(self, options: Mapping[str, Any], settings: DataConfig, tokenizers: Tokenizers) -> dict[str, Any]:
        """Returns the options of a model that only the data can tell, such as the sizes of vocabularies."""

    @abc.abstractmethod
    def batches(
        self, settings: DataConfig, data: DataType, split: str, tokenizers: Tokenizers, **options: Any
    ) -> Batches:
        """Returns the batches of a split, encoded; training examples are cut at `max_length`.

        The options are `batch_tokens`, `static_shapes`, and for training `steps` and `seed`; see `Batches`.
        """

    def metrics(self) -> list[keras.metrics.Metric]:
        """Returns metrics of training and validation besides the cross-entropy."""
        return []

    @abc.abstractmethod
    def evaluate(self, run: Any, data: DataType, split: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
        """Returns metrics of a trained model on a split, and its answer to each example; options are of decoding."""

    @abc.abstractmethod
    def measure(self, examples: Any, answers: Sequence[str]) -> dict[str, Any]:
        """Returns the metrics of answers to examples of a split; without answers those that need none."""

    @abc.abstractmethod
    def sources(self, examples: Any) -> list[str]:
        """Returns what a model reads of each example of a split before it answers."""

    def derived(self, cross_entropy: float, symbols: int, examples: Any) -> dict[str, float]:
        """Returns what follows from the cross-entropy of a split, a mean in nats over so many symbols."""
        return {"perplexity": perplexity(cross_entropy)}


def cut(columns: Sequence[list[list[int]]], limit: int, what: str) -> list[list[list[int]]]:
    """Returns columns of rows cut to a largest length, and says on standard error how many examples are affected.

    Row n of each column belongs to example n; `what` names the examples, such as `"pairs of the train split"`.
    """
    too_long = sum(max(map(len, rows)) > limit for rows in zip(*columns, strict=True))
    if too_long:
        print(f"{too_long} of {len(columns[0])} {what} are cut at {limit + 1} symbols", file=sys.stderr)
    return [[row[:limit] for row in rows] for rows in columns]
