"""The interface between the training loop and the kinds of tasks."""

import abc
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import keras

from training.config.options import DataConfig
from training.config.vocabularies import Tokenizers, make_tokenizers, settle
from training.data import Dataset
from training.data.batching import Batches
from training.data.shards.rows import Rows, count_longer
from training.optimization.cross_entropy import perplexity

DataType = TypeVar("DataType", bound=Dataset[Any])


class Task(abc.ABC, Generic[DataType]):
    """A kind of task: makes batches of its data, and evaluates its models.

    Attributes:
        name: The name in `ModelSpec.task` and `Dataset.task`.
        unit: The name of an example, in the plural.
        tokenizer_names: The names of the files of its tokenizers.
    """

    name: str
    unit: str
    tokenizer_names: tuple[str, ...] = ("text",)

    def settle(self, settings: DataConfig, data: DataType) -> DataConfig:
        """Returns the settings, with automatic ones filled in from the data."""
        return settle(settings, data)

    def make_tokenizers(self, settings: DataConfig, data: DataType) -> Tokenizers:
        """Returns tokenizers trained on the training split, by the name of their file."""
        return make_tokenizers(settings, data)

    @abc.abstractmethod
    def model_options(self, options: Mapping[str, Any], settings: DataConfig, tokenizers: Tokenizers) -> dict[str, Any]:
        """Returns the options of a model that depend on the data, such as the sizes of vocabularies."""

    @abc.abstractmethod
    def batches(
        self, settings: DataConfig, data: DataType, split: str, tokenizers: Tokenizers, **options: Any
    ) -> Batches:
        """Returns the batches of a split, encoded; training examples are truncated to `max_length`.

        The options are `batch_tokens`, `static_shapes`, `share`, and for training `steps` and `seed`; see `Batches`.
        """

    def metrics(self) -> list[keras.metrics.Metric]:
        """Returns the metrics of training and validation besides the cross-entropy."""
        return []

    @abc.abstractmethod
    def evaluate(self, run: Any, data: DataType, split: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
        """Returns metrics of a trained model on a split, and its outputs; `options` are for decoding."""

    @abc.abstractmethod
    def measure(self, examples: Any, answers: Sequence[str], spec: str = "") -> dict[str, Any]:
        """Returns the metrics of a model's outputs; without outputs, only metrics that need none.

        Args:
            examples: The examples of a split.
            answers: The outputs of the model.
            spec: The SPEC of the data, which may name their language.
        """

    @abc.abstractmethod
    def sources(self, examples: Any) -> list[str]:
        """Returns the input of a model for each example of a split."""

    def derived(self, cross_entropy: float, tokens: int, examples: Any) -> dict[str, float]:
        """Returns metrics derived from the cross-entropy of a split, the mean in nats over `tokens` tokens."""
        return {"perplexity": perplexity(cross_entropy)}


def cut(columns: Sequence[Rows], limit: int, what: str) -> list[Rows]:
    """Truncates columns of rows to a largest length, and reports the number of affected examples on standard error.

    Row n of each column belongs to example n, its end included; `what` describes the examples, such as `"pairs of the
    train split"`.
    """
    if too_long := count_longer(columns, limit):
        print(f"{too_long} of {len(columns[0])} {what} are truncated to {limit} tokens", file=sys.stderr)
    return [rows.cut(limit) for rows in columns]
