"""Subwords and words in the graph."""

import tensorflow as tf
import tensorflow_text as tf_text

from export.graph.tokenizers.base import TokenizerGraph, tokenizer_graph
from zoo.text import SubwordTokenizer


@tokenizer_graph.register(SubwordTokenizer)
class SubwordGraph(TokenizerGraph):
    """SentencePiece by TensorFlow Text, with the model that the Python half uses."""

    def __init__(self, tokenizer: SubwordTokenizer):
        super().__init__(tokenizer)
        self._processor = tf_text.SentencepieceTokenizer(model=tokenizer.model, out_type=tf.int32)

    def encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._processor.tokenize(self._read(text))

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        return self._processor.detokenize(ids)
