"""The signatures of classifiers."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from export.graph.model_graph import IDS, TEXT, ModelGraph, read_texts, shared
from export.graph.signatures import CLASSIFY, TEXTS, Answers, register_default, register_signature
from export.options import ExportOptions
from zoo.inference import MAX_TEXT_LENGTH, ClassifierRun


class ClassifierGraph(ModelGraph):
    """A classifier."""

    max_ids = MAX_TEXT_LENGTH

    def __init__(self, run: ClassifierRun, options: ExportOptions):
        super().__init__(run, options)
        self._classes = run.classes

    @shared(TEXT)
    def read(self, text: tf.Tensor) -> tf.Tensor:
        return read_texts(self.tokenizers["text"], text, MAX_TEXT_LENGTH)

    @shared(IDS)
    def compute(self, ids: tf.Tensor) -> Any:
        return self.model({"tokens": ids}, training=False)

    def write(self, ids: tf.Tensor, results: Any) -> dict[str, tf.Tensor]:
        classes = tf.constant(self._classes)
        return {
            "label": tf.gather(classes, tf.argmax(results, axis=-1)),
            "probabilities": tf.nn.softmax(tf.cast(results, tf.float32)),
            "classes": tf.tile(classes[None], [tf.shape(results)[0], 1]),
        }


def _expected_labels(run: ClassifierRun, options: ExportOptions) -> Answers:
    answers = run.classify(TEXTS)
    probabilities = [answer.probabilities.tolist() for answer in answers]
    outputs = {"label": [answer.label for answer in answers], "probabilities": probabilities}
    return {"text": TEXTS}, {**outputs, "classes": [run.classes] * len(TEXTS)}


register_default("classifier", _expected_labels)


def _expected_examples(run: ClassifierRun, options: ExportOptions) -> Answers:
    _, outputs = _expected_labels(run, options)
    examples = [tf.train.Example() for _ in TEXTS]
    for example, text in zip(examples, TEXTS, strict=True):
        example.features.feature["text"].bytes_list.value.append(text.encode())
    inputs = [example.SerializeToString().decode("utf-8", "surrogateescape") for example in examples]
    return {"inputs": inputs}, {"classes": outputs["classes"], "scores": outputs["probabilities"]}


@register_signature("classifier", "classify", batchable=True, api=CLASSIFY, expected=_expected_examples)
def classify(graph: ClassifierGraph, inputs: tf.Tensor) -> Mapping[str, tf.Tensor]:
    """The classes of `tf.Example`s and their probabilities."""
    features = tf.io.parse_example(inputs, {"text": tf.io.FixedLenFeature([], tf.string)})
    outputs = graph.answer(features["text"])
    return {"classes": outputs["classes"], "scores": outputs["probabilities"]}
