"""SentencePiece with the ids of another vocabulary, in the graph."""

import tensorflow as tf
import tensorflow_text as tf_text

from export.graph.tokenizers.base import TokenizerGraph, replaced, string_table, tidying, tokenizer_graph
from zoo.text import MappedSubwordTokenizer
from zoo.vocabulary import UNKNOWN

_CODE = "(?s)^>>.*?<<"


@tokenizer_graph.register(MappedSubwordTokenizer)
class MappedSubwordGraph(TokenizerGraph):
    """SentencePiece by TensorFlow Text, and a table from pieces to ids.

    SentencePiece returns unknown pieces unchanged; they may be in the table, as pieces of the other language.
    """

    def __init__(self, tokenizer: MappedSubwordTokenizer):
        super().__init__(tokenizer)
        self._processor = tf_text.SentencepieceTokenizer(model=tokenizer.model, out_type=tf.string)
        ids = tokenizer.ids()
        initializer = tf.lookup.KeyValueTensorInitializer(
            tf.constant(string_table(list(ids)), tf.string), tf.constant(list(ids.values()), tf.int32)
        )
        self._ids = tf.lookup.StaticHashTable(initializer, UNKNOWN)
        self._surfaces = string_table(tokenizer.surfaces())
        self._has_codes = tokenizer.has_codes
        self._replaced = [("^ +| +$", ""), *(tidying() if tokenizer.tidy else ())]

    def encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        text = self._read(text)
        if not self._has_codes:
            pieces = self._processor.tokenize(text)
            return pieces.with_flat_values(self._ids.lookup(pieces.flat_values))
        rest = tf.strings.regex_replace(text, _CODE, "", replace_global=False)
        code_size = tf.strings.length(text) - tf.strings.length(rest)
        code = tf.strings.substr(text, tf.zeros_like(code_size), code_size)
        has_code = code_size > 0
        codes = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(code, has_code), tf.cast(has_code, tf.int64), validate=False
        )
        pieces = tf.concat([codes, self._processor.tokenize(rest)], axis=1)
        return pieces.with_flat_values(self._ids.lookup(pieces.flat_values))

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        pieces = tf.ragged.map_flat_values(tf.gather, tf.constant(self._surfaces), ids)
        text = tf.strings.reduce_join(pieces, axis=1)
        return replaced(text, self._replaced)
