"""The interface between the one training loop and the kinds of tasks."""

import abc
import sys
from collections.abc import Callable, Sequence
from typing import Any

import keras

from training.config.run_config import Config, DataConfig
from training.data import Dataset
from training.data.batching import Batches
from training.optimization.losses import perplexity
from zoo.inference import Run
from zoo.text import Tokenizer, train_tokenizer

Tokenizers = dict[str, Tokenizer]


class Task(abc.ABC):
    """A kind of task: how its data become batches, and what is measured behind training.

    Attributes:
        name: As in `ModelSpec.task` and `Dataset.task`.
        unit: What an example is called, in the plural.
    """

    name: str
    unit: str

    def settle(self, settings: DataConfig, data: Dataset) -> None:
        """Decides in place what the settings leave to the data.

        Args:
            settings: The settings.
            data: The data.
        """
        if settings.tokenizer == "auto":
            settings.tokenizer = data.tokenizer

    def learner(self, settings: DataConfig, data: Dataset) -> Callable[[Sequence[str]], Tokenizer]:
        """Returns the function that trains a tokenizer on lines, as the settings say.

        Args:
            settings: The settings; what is automatic is resolved in place.
            data: The data.
        """
        self.settle(settings, data)
        size = None if settings.tokenizer == "chars" else settings.vocab_size
        return lambda lines: train_tokenizer(settings.tokenizer, lines, size, settings.lowercase)

    @abc.abstractmethod
    def make_tokenizers(self, settings: DataConfig, data: Dataset) -> Tokenizers:
        """Returns tokenizers trained on the training split, by the name of their file.

        Args:
            settings: The settings; what is automatic is resolved in place.
            data: The data.
        """

    @abc.abstractmethod
    def complete(self, config: Config, data: Dataset, tokenizers: Tokenizers) -> None:
        """Completes the configuration with what only the data can tell, such as the sizes of vocabularies.

        Args:
            config: The configuration, completed in place.
            data: The data.
            tokenizers: The tokenizers.
        """

    @abc.abstractmethod
    def batches(self, config: Config, data: Dataset, split: str, tokenizers: Tokenizers, **options) -> Batches:
        """Returns the batches of a split, encoded; training examples are cut at `data.max_length`.

        Args:
            config: The complete configuration.
            data: The data.
            split: `train`, `val` or `test`.
            tokenizers: The tokenizers.
            **options: `batch_tokens`, `static_shapes`, and for training `steps` and `seed`; see `Batches`.
        """

    def metrics(self) -> list[keras.metrics.Metric]:
        """Returns metrics of training and validation beside the cross-entropy."""
        return []

    @abc.abstractmethod
    def evaluate(self, run: Run, data: Dataset, split: str, **options) -> tuple[dict[str, Any], list[str]]:
        """Returns metrics of a trained model on a split, and what it answered, a line for each example.

        Args:
            run: The loaded work directory.
            data: The data.
            split: `train`, `val` or `test`.
            **options: Options of decoding.
        """

    def derived(self, cross_entropy: float, symbols: int, examples) -> dict[str, float]:
        """Returns what follows from the cross-entropy of a split.

        Args:
            cross_entropy: Mean, in nats.
            symbols: What it is the mean over.
            examples: The split.
        """
        return {"perplexity": perplexity(cross_entropy)}


def cut(columns: Sequence[list[list[int]]], limit: int, what: str) -> list[list[list[int]]]:
    """Returns columns of rows cut to a largest length, and says on standard error how many examples that touched.

    Args:
        columns: Rows of ids; row n of each column belongs to example n.
        limit: Largest length of a row.
        what: What the examples are, such as `"pairs of the train split"`.
    """
    touched = sum(max(map(len, rows)) > limit for rows in zip(*columns, strict=True))
    if touched:
        print(f"{touched} of {len(columns[0])} {what} are cut at {limit + 1} symbols", file=sys.stderr)
    return [[row[:limit] for row in rows] for rows in columns]
