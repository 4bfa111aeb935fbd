"""Classification: texts and their labels."""

import keras

from training.batching import LabelledBatches
from training.metrics import classification_metrics
from training.tasks.task import Task, cut, learner
from zoo.text import END


class ClassifierTask(Task):
    """Reads a text and names its class."""

    name = "classifier"
    unit = "texts"

    def make_tokenizers(self, settings, data):
        return {"text": learner(settings, data)(data.split("train").texts)}

    def complete(self, config, data, tokenizers):
        config.data.classes = list(data.classes)
        config.model |= {"vocab_size": tokenizers["text"].vocab_size, "num_classes": len(data.classes)}

    def batches(self, config, data, split, tokenizers, **options):
        labelled = data.split(split)
        rows = tokenizers["text"].encode(labelled.texts)
        if split == "train":
            (rows,) = cut([rows], config.data.max_length - 1, "texts of the train split")
        number = {name: index for index, name in enumerate(config.data.classes)}
        return LabelledBatches([[*row, END] for row in rows], [number[label] for label in labelled.labels], **options)

    def metrics(self):
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def evaluate(self, run, data, split, **options):
        labelled = data.split(split)
        labels = [answer.label for answer in run.classify(labelled.texts, **options)]
        return classification_metrics(labels, labelled.labels), labels

    def derived(self, cross_entropy, symbols, examples):
        return {}
