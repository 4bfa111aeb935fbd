"""Characters in the graph."""

import numpy as np
import tensorflow as tf

from export.graph.tokenizers.base import TokenizerGraph, string_table, tokenizer_graph
from zoo.text import CharTokenizer
from zoo.vocabulary import UNKNOWN


@tokenizer_graph.register(CharTokenizer)
class CharGraph(TokenizerGraph):
    """Characters by binary search in a table of code points, which requires no resource to be initialized."""

    def __init__(self, tokenizer: CharTokenizer):
        super().__init__(tokenizer)
        ordered = sorted(tokenizer.ids.items())
        self._code_points = np.array([ord(character) for character, _ in ordered], dtype=np.int32)
        self._ids = np.array([i for _, i in ordered], dtype=np.int32)
        self._surfaces = string_table(tokenizer.surfaces())

    def encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        code_points = tf.strings.unicode_decode(self._read(text), "UTF-8")
        table = tf.constant(self._code_points)
        wanted = code_points.flat_values
        at = tf.minimum(tf.searchsorted(table, wanted), len(self._code_points) - 1)
        ids = tf.where(tf.gather(table, at) == wanted, tf.gather(tf.constant(self._ids), at), UNKNOWN)
        return code_points.with_flat_values(ids)

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        characters = tf.ragged.map_flat_values(tf.gather, tf.constant(self._surfaces), ids)
        return tf.strings.reduce_join(characters, axis=1)
