"""The interface between the one training loop and the kinds of tasks."""

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
        return settle(settings, data)

    def make_tokenizers(self, settings: DataConfig, data: DataType) -> Tokenizers:
        """Returns tokenizers trained on the training split, by the name of their file."""
        return make_tokenizers(settings, data)

    @abc.abstractmethod
    def model_options(self, options: Mapping[str, Any], settings: DataConfig, tokenizers: Tokenizers) -> dict[str, Any]:
        """Returns the options of a model that only the data can tell, such as the sizes of vocabularies."""

    @abc.abstractmethod
    def batches(
        self, settings: DataConfig, data: DataType, split: str, tokenizers: Tokenizers, **options: Any
    ) -> Batches:
        """Returns the batches of a split, encoded; training examples are cut at `max_length`.

        The options are `batch_tokens`, `static_shapes`, `share`, and for training `steps` and `seed`; see `Batches`.
        """

    def metrics(self) -> list[keras.metrics.Metric]:
        """Returns metrics of training and validation besides the cross-entropy."""
        return []

    @abc.abstractmethod
    def evaluate(self, run: Any, data: DataType, split: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
        """Returns metrics of a trained model on a split, and its answer to each example; options are of decoding."""

    @abc.abstractmethod
    def measure(self, examples: Any, answers: Sequence[str], spec: str = "") -> dict[str, Any]:
        """Returns the metrics of answers to examples of a split; without answers those that need none.

        Args:
            examples: The examples.
            answers: The answers.
            spec: The SPEC of the data, which may name their language.
        """

    @abc.abstractmethod
    def sources(self, examples: Any) -> list[str]:
        """Returns what a model reads of each example of a split before it answers."""

    def derived(self, cross_entropy: float, symbols: int, examples: Any) -> dict[str, float]:
        """Returns what follows from the cross-entropy of a split, a mean in nats over so many symbols."""
        return {"perplexity": perplexity(cross_entropy)}


def cut(columns: Sequence[Rows], limit: int, what: str) -> list[Rows]:
    """Returns columns of rows cut to a largest length, and says on standard error how many examples are affected.

    Row n of each column belongs to example n, its end included; `what` names the examples, such as `"pairs of the train
    split"`.
    """
    if too_long := count_longer(columns, limit):
        print(f"{too_long} of {len(columns[0])} {what} are cut at {limit} symbols", file=sys.stderr)
    return [rows.cut(limit) for rows in columns]
