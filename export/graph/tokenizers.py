"""The TensorFlow half of the tokenizers: strings in, ids out and back, inside a graph.

Only ops of core TensorFlow and TensorFlow Text are used, which the stock model server links. A request never fails on
its content: invalid UTF-8 reads as U+FFFD, and ids outside the vocabulary are skipped.
"""

import abc
import functools

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from zoo.text import CharTokenizer, SubwordTokenizer, Tokenizer
from zoo.vocabulary import END, PAD, UNKNOWN


@functools.singledispatch
def tokenizer_graph(tokenizer: Tokenizer) -> "TokenizerGraph":
    """Returns the TensorFlow half of a tokenizer; one for another class is added with `tokenizer_graph.register`."""
    raise TypeError(f"{type(tokenizer).__name__} has no TensorFlow half: see `tokenizer_graph.register`.")


class TokenizerGraph(tf.Module, abc.ABC):
    """A tokenizer as a `tf.Module`; whatever exports it must hold it, so that its resources are tracked."""

    def __init__(self, tokenizer: Tokenizer):
        super().__init__()
        self.vocab_size = tokenizer.vocab_size
        self.lowercase = tokenizer.lowercase
        # Held as NumPy bytes: an EagerTensor would tie the module to the runtime that made it.
        self._pieces = _string_table(("", *tokenizer.piece_table()[PAD + 1 :]))

    @abc.abstractmethod
    def encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids, int32 [B, None], of texts [B] meant as UTF-8, without special ids around them."""

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the texts [B] of rows of ids, int32 [B, T].

        A row ends at its first `END`; `PAD`, `START` and ids outside the vocabulary are skipped.
        """
        ids = tf.cast(ids, tf.int32)
        before_end = tf.cumsum(tf.cast(ids == END, tf.int32), axis=1) == 0
        is_text = (ids >= UNKNOWN) & (ids < self.vocab_size)
        return self._decode(tf.ragged.boolean_mask(ids, before_end & is_text))

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns one printable string per id, int32 [B, T]; `PAD` and ids outside the vocabulary give `""`."""
        ids = tf.cast(ids, tf.int32)
        known = (ids > PAD) & (ids < self.vocab_size)
        return tf.gather(tf.constant(self._pieces), tf.where(known, ids, PAD))

    def _read(self, text: tf.Tensor) -> tf.Tensor:
        """Returns valid UTF-8, in lower case where the tokenizer says so."""
        valid = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)
        if not self.lowercase:
            return valid
        # `lower` ends a string at its first NUL.
        return tf.strings.lower(tf.strings.regex_replace(valid, r"\x00", "\ufffd"), encoding="utf-8")

    @abc.abstractmethod
    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the texts of rows that hold ordinary and unknown ids only."""


class SubwordGraph(TokenizerGraph):
    """SentencePiece by TensorFlow Text, with the model that the Python half uses."""

    def __init__(self, tokenizer: SubwordTokenizer):
        super().__init__(tokenizer)
        self._processor = tf_text.SentencepieceTokenizer(model=tokenizer.model, out_type=tf.int32)

    def encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._processor.tokenize(self._read(text))

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        return self._processor.detokenize(ids)


class CharGraph(TokenizerGraph):
    """Characters by searching a sorted table of code points, which needs no resource to initialise."""

    def __init__(self, tokenizer: CharTokenizer):
        super().__init__(tokenizer)
        ordered = sorted(tokenizer.ids.items())
        self._code_points = np.array([ord(character) for character, _ in ordered], dtype=np.int32)
        self._ids = np.array([i for _, i in ordered], dtype=np.int32)
        self._surfaces = _string_table(tokenizer.surfaces())

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


tokenizer_graph.register(SubwordTokenizer, SubwordGraph)
tokenizer_graph.register(CharTokenizer, CharGraph)


def _string_table(texts: tuple[str, ...]) -> np.ndarray:
    """Returns UTF-8 bytes as objects; NumPy's own string type would cut a trailing NUL."""
    return np.array([text.encode() for text in texts], dtype=object)
