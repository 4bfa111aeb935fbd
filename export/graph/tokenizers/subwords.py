"""SentencePiece in the graph, with its own ids or those of another vocabulary."""

import re

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from export.graph.tokenizers.base import TokenizerGraph, joined, replaced, string_table, tidying, tokenizer_graph
from zoo.text import MappedSubwordTokenizer, ReorderedSubwordTokenizer, SubwordTokenizer
from zoo.text.mapped_subwords import SPACE
from zoo.vocabulary import SPECIAL_PIECES, UNKNOWN, UNKNOWN_SURFACE

_CODE = "(?s)^>>.*?<<"
_BYTE = re.compile("<0x([0-9A-F]{2})>")


@tokenizer_graph.register(SubwordTokenizer)
class SubwordGraph(TokenizerGraph):
    """SentencePiece by TensorFlow Text, with the model of the Python tokenizer."""

    def __init__(self, tokenizer: SubwordTokenizer):
        super().__init__(tokenizer)
        self._processor = tf_text.SentencepieceTokenizer(model=tokenizer.model, out_type=tf.int32)

    def encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._processor.tokenize(self._read(text))

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        return self._processor.detokenize(ids)


@tokenizer_graph.register(ReorderedSubwordTokenizer)
class ReorderedSubwordGraph(SubwordGraph):
    """SentencePiece by TensorFlow Text, with a constant table from its ids to those of the project.

    Texts are joined here, because the older SentencePiece in TensorFlow Text drops all leading spaces of a text, even
    for models that add none, such as Gemma's.
    """

    def __init__(self, tokenizer: ReorderedSubwordTokenizer):
        super().__init__(tokenizer)
        self._ids_of_model = np.array(tokenizer.ids_of_model, np.int32)
        pieces = tokenizer.piece_table()
        pairs = zip(pieces, tokenizer.model_ids, strict=True)
        self._surfaces = np.array([_surface(piece) if i >= 0 else b"" for piece, i in pairs], dtype=object)
        # A piece of several spaces would still begin with a space after one is dropped.
        words = (i for i, piece in enumerate(pieces) if piece.startswith(SPACE) and not piece.startswith(2 * SPACE))
        spaced = next(words, None)
        drops_space = spaced is None or not tokenizer.decode([[spaced]])[0].startswith(" ")
        surfaces = zip(pieces, self._surfaces, strict=True)
        first = [text[1:] if drops_space and piece.startswith(SPACE) else text for piece, text in surfaces]
        self._first_surfaces = np.array(first, dtype=object)
        self._replaced, self._spaced = tidying() if tokenizer.tidy else [], tokenizer.spaced

    def encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        if self._spaced:
            text = tf.strings.regex_replace(self._read(text), f"^([^ {SPACE}])", r" \1", replace_global=False)
        return tf.ragged.map_flat_values(tf.gather, tf.constant(self._ids_of_model), super().encode(text))

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        is_text = tf.ragged.map_flat_values(tf.gather, tf.constant(self._surfaces != b""), ids)
        text = joined(tf.ragged.boolean_mask(ids, is_text), self._first_surfaces, self._surfaces)
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)
        return replaced(text, self._replaced)


def _surface(piece: str) -> bytes:
    """Returns the text of a piece; pieces such as `<0x0A>` are single bytes."""
    if byte := _BYTE.fullmatch(piece):
        return bytes([int(byte[1], 16)])
    special = {SPECIAL_PIECES[UNKNOWN]: f" {UNKNOWN_SURFACE} ", **dict.fromkeys(SPECIAL_PIECES[:UNKNOWN], "")}
    return special.get(piece, piece.replace(SPACE, " ")).encode()


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
