"""Classification: texts and their labels."""

import keras

from training.data.batching import LabelledBatches
from training.tasks.metrics import classification_metrics
from training.tasks.task import Task, cut
from zoo.errors import InputError, unknown_name
from zoo.text import END


def _numbers(classes, data, split):
    """Returns the class of each example of a split as a number."""
    number = {name: index for index, name in enumerate(classes)}
    labels = data.split(split).labels
    for label in labels:
        if label not in number:
            raise InputError(f"{data.spec}, {split}: {unknown_name('label', label, number)} The model lacks it.")
    return [number[label] for label in labels]


class ClassifierTask(Task):
    """Reads a text and names its class."""

    name = "classifier"
    unit = "texts"

    def make_tokenizers(self, settings, data):
        return {"text": self.learner(settings, data)(data.split("train").texts)}

    def complete(self, config, data, tokenizers):
        config.data.classes = list(data.classes)
        config.model |= {"vocab_size": tokenizers["text"].vocab_size, "num_classes": len(data.classes)}

    def batches(self, config, data, split, tokenizers, **options):
        numbers = _numbers(config.data.classes, data, split)
        rows = tokenizers["text"].encode(data.split(split).texts)
        if split == "train":
            (rows,) = cut([rows], config.data.max_length - 1, "texts of the train split")
        return LabelledBatches([[*row, END] for row in rows], numbers, **options)

    def metrics(self):
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def evaluate(self, run, data, split, **options):
        labelled = data.split(split)
        _numbers(run.classes, data, split)  # Before the texts are classified.
        labels = [answer.label for answer in run.classify(labelled.texts, **options)]
        return classification_metrics(labels, labelled.labels), labels

    def derived(self, cross_entropy, symbols, examples):
        return {}
