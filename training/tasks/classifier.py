"""Classification: texts and their labels."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from training.config.options import DataConfig
from training.config.vocabularies import Tokenizers
from training.data import Labelled, LabelledData
from training.data.batching import LabelledBatches
from training.data.encoding import class_numbers, encode_split
from training.data.sampling import samplers
from training.tasks.metrics import classification_metrics
from training.tasks.task import Task, cut
from zoo.text import sentence_ends


def _metrics_of_parts(data: LabelledData, split: str, answers: Sequence[str]) -> dict[str, float]:
    """Returns the metrics of each part of the data, such as `twins_accuracy`; nothing for data without parts."""
    metrics: dict[str, float] = {}
    start = 0
    for part, size in zip(data.parts, data.part_sizes(split), strict=True):
        rows = slice(start, start + size)
        metrics_of_part = classification_metrics(answers[rows], data.split(split).labels[rows])
        metrics |= {f"{part}_{name}": value for name, value in metrics_of_part.items()}
        start += size
    return metrics


class ClassifierTask(Task[LabelledData]):
    """Predicts the class of a text."""

    name = "classifier"
    unit = "texts"

    def model_options(self, options: Mapping[str, Any], settings: DataConfig, tokenizers: Tokenizers) -> dict[str, Any]:
        tokenizer = tokenizers["text"]
        derived: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, "num_classes": len(settings.classes or ())}
        if options.get("sentence_ends") == "auto":
            derived["sentence_ends"] = ",".join(map(str, sentence_ends(tokenizer))) or "none"
        return derived

    def batches(
        self, settings: DataConfig, data: LabelledData, split: str, tokenizers: Tokenizers, **options: Any
    ) -> LabelledBatches:
        encoded = encode_split(data, split, tokenizers, settings.classes or ())
        rows = encoded.columns["text"]
        if split == "train":
            options["samplers"] = samplers(settings.sampling, [tokenizers["text"]])
            (rows,) = cut([rows], settings.max_length, "texts of the train split")
        return LabelledBatches(rows, encoded.columns["label"].values(), corpus=encoded.corpus, **options)

    def metrics(self) -> list[keras.metrics.Metric]:
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def evaluate(self, run: Any, data: LabelledData, split: str, **options: Any) -> tuple[dict[str, Any], list[str]]:
        labelled = data.split(split)
        class_numbers(labelled.labels, run.classes, f"{data.spec}, {split}")  # Before the texts are classified.
        labels = [answer.label for answer in run.classify(labelled.texts, **options)]
        return self.measure(labelled, labels) | _metrics_of_parts(data, split, labels), labels

    def measure(self, examples: Labelled, answers: Sequence[str], spec: str = "") -> dict[str, Any]:
        return classification_metrics(answers, examples.labels)

    def sources(self, examples: Labelled) -> list[str]:
        return examples.texts

    def derived(self, cross_entropy: float, tokens: int, examples: Any) -> dict[str, float]:
        return {}
