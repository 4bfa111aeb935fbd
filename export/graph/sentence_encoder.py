"""The signatures of sentence encoders."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from export.graph.model_graph import IDS, TEXT, ModelGraph, read_texts, shared
from export.graph.signatures import TEXTS, Answers, register_default, register_signature
from export.options import ExportOptions
from zoo.inference import SentenceEncoderRun


class SentenceEncoderGraph(ModelGraph):
    """A sentence encoder."""

    def __init__(self, run: SentenceEncoderRun, options: ExportOptions):
        super().__init__(run, options)
        self.max_ids = run.text_length

    @shared(TEXT)
    def read(self, text: tf.Tensor) -> tf.Tensor:
        return read_texts(self.tokenizers["text"], text, self.max_ids)

    @shared(IDS)
    def compute(self, ids: tf.Tensor) -> Any:
        return self.model({"tokens": ids}, training=False)

    def write(self, ids: tf.Tensor, results: Any) -> dict[str, tf.Tensor]:
        return {"embeddings": tf.cast(results, tf.float32)}


def _expected_vectors(run: SentenceEncoderRun, options: ExportOptions) -> Answers:
    return {"text": TEXTS}, {"embeddings": run.embed_text(TEXTS).tolist()}


register_default("sentence_encoder", _expected_vectors)


@register_signature("sentence_encoder", "embed_text", batchable=True, expected=_expected_vectors)
def embed_text(graph: SentenceEncoderGraph, text: tf.Tensor) -> Mapping[str, tf.Tensor]:
    """A vector per text."""
    return graph.answer(text)
