"""Classification: texts and their labels."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from training.config.options import DataConfig
from training.data import Labelled, LabelledData
from training.data.batching import LabelledBatches
from training.tasks.metrics import classification_metrics
from training.tasks.task import Task, Tokenizers, cut
from zoo.errors import InputError, unknown_name
from zoo.text import sentence_ends
from zoo.vocabulary import END


def _class_numbers(classes: Sequence[str], data: LabelledData, split: str) -> list[int]:
    """Returns the class of each example of a split as a number."""
    number = {name: index for index, name in enumerate(classes)}
    labels = data.split(split).labels
    for label in labels:
        if label not in number:
            raise InputError(f"{data.spec}, {split}: {unknown_name('label', label, number)} The model lacks it.")
    return [number[label] for label in labels]


def _metrics_of_parts(data: LabelledData, split: str, answers: Sequence[str]) -> dict[str, float]:
    """Returns the metrics of each part of the data, such as `twins_accuracy`; nothing for data without parts."""
    metrics: dict[str, float] = {}
    start = 0
    for part, size in zip(data.parts, data.part_sizes(split), strict=True):
        rows = slice(start, start + size)
        measured = classification_metrics(answers[rows], data.split(split).labels[rows])
        metrics |= {f"{part}_{name}": value for name, value in measured.items()}
        start += size
    return metrics


class ClassifierTask(Task[LabelledData]):
    """Reads a text and names its class."""

    name = "classifier"
    unit = "texts"

    def settle(self, settings: DataConfig, data: LabelledData) -> DataConfig:
        return dataclasses.replace(super().settle(settings, data), classes=data.classes, parts=list(data.parts))

    def make_tokenizers(self, settings: DataConfig, data: LabelledData) -> Tokenizers:
        return {"text": self.learner(settings)(data.split("train").texts)}

    def model_options(self, options: Mapping[str, Any], settings: DataConfig, tokenizers: Tokenizers) -> dict[str, Any]:
        tokenizer = tokenizers["text"]
        known: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, "num_classes": len(settings.classes or ())}
        if options.get("sentence_ends") == "auto":
            known["sentence_ends"] = ",".join(map(str, sentence_ends(tokenizer))) or "none"
        return known

    def batches(
        self, settings: DataConfig, data: LabelledData, split: str, tokenizers: Tokenizers, **options: Any
    ) -> LabelledBatches:
        numbers = _class_numbers(settings.classes or (), data, split)
        rows = tokenizers["text"].encode(data.split(split).texts)
        if split == "train":
            (rows,) = cut([rows], settings.max_length - 1, "texts of the train split")
        return LabelledBatches([[*row, END] for row in rows], numbers, **options)

    def metrics(self) -> list[keras.metrics.Metric]:
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def evaluate(self, run: Any, data: LabelledData, split: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
        labelled = data.split(split)
        _class_numbers(run.classes, data, split)  # Before the texts are classified.
        labels = [answer.label for answer in run.classify(labelled.texts, **options)]
        return self.measure(labelled, labels) | _metrics_of_parts(data, split, labels), labels

    def measure(self, examples: Labelled, answers: Sequence[str]) -> dict[str, Any]:
        return classification_metrics(answers, examples.labels)

    def sources(self, examples: Labelled) -> list[str]:
        return examples.texts

    def derived(self, cross_entropy: float, symbols: int, examples: Any) -> dict[str, float]:
        return {}
