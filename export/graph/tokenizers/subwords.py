"""Subwords and words in the graph."""

import re

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from export.graph.tokenizers.base import TokenizerGraph, joined, replaced, tidying, tokenizer_graph
from zoo.text import ReorderedSubwordTokenizer, SubwordTokenizer
from zoo.text.mapped_subwords import SPACE
from zoo.vocabulary import SPECIAL_PIECES, UNKNOWN, UNKNOWN_SURFACE

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
    """SentencePiece by TensorFlow Text, with a constant table from its ids to ours.

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
        self._replaced = tidying() if tokenizer.tidy else []

    def encode(self, text: tf.Tensor) -> tf.RaggedTensor:
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
