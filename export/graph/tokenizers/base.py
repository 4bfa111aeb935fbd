"""The base class of the tokenizers in the graph."""

import abc
import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.text import Tokenizer
from zoo.text.mapped_subwords import TIDY
from zoo.vocabulary import END, PAD, UNKNOWN


@functools.singledispatch
def tokenizer_graph(tokenizer: Tokenizer) -> "TokenizerGraph":
    """Returns a tokenizer as a graph; `tokenizer_graph.register` adds the graph of another tokenizer class."""
    raise TypeError(f"{type(tokenizer).__name__} has no TensorFlow graph: see `tokenizer_graph.register`.")


class TokenizerGraph(tf.Module, abc.ABC):
    """A tokenizer as a `tf.Module`; the exported object must contain it, so that its resources are tracked."""

    def __init__(self, tokenizer: Tokenizer):
        super().__init__()
        self.vocab_size = tokenizer.vocab_size
        self.lowercase = tokenizer.lowercase
        self.has_start, self.has_end = tokenizer.has_start, tokenizer.has_end
        self.before, self.after = (
            np.array(tokenizer.around.before, np.int32),
            np.array(tokenizer.around.after, np.int32),
        )
        self.forced = np.array(tokenizer.forced, np.int32)
        # NumPy bytes, because an EagerTensor would bind the module to the runtime that created it.
        self._pieces = string_table(("", *tokenizer.piece_table()[PAD + 1 :]))

    @abc.abstractmethod
    def encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids, int32 [B, None], of texts [B] in UTF-8, without start and end ids."""

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the texts [B] of rows of ids, int32 [B, T].

        A row ends at its first `END`; `PAD`, `START` and ids outside the vocabulary are skipped.
        """
        ids = tf.cast(ids, tf.int32)
        before_end = tf.cumsum(tf.cast(ids == END, tf.int32), axis=1) == 0
        is_text = (ids >= UNKNOWN) & (ids < self.vocab_size)
        return self._decode(tf.ragged.boolean_mask(ids, before_end & is_text))

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns one printable string per id, int32 [B, T]; it is empty for `PAD` and ids outside the vocabulary."""
        strings: tf.Tensor = self._printed(tf.cast(ids, tf.int32))
        return strings

    @functools.cached_property
    def _printed(self) -> Any:
        """The graph function of `pieces`, a single one, so that an export has one table of all strings."""

        def printed(ids: tf.Tensor) -> tf.Tensor:
            known = (ids > PAD) & (ids < self.vocab_size)
            return tf.gather(tf.constant(self._pieces), tf.where(known, ids, PAD))

        return tf.function(printed, input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False)

    def _read(self, text: tf.Tensor) -> tf.Tensor:
        """Returns valid UTF-8, in lower case if the tokenizer requires it."""
        valid = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)
        if not self.lowercase:
            return valid
        # `lower` cuts a string at its first NUL.
        return tf.strings.lower(tf.strings.regex_replace(valid, r"\x00", "\ufffd"), encoding="utf-8")

    @abc.abstractmethod
    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the texts of rows that contain only ordinary and unknown ids."""


def string_table(texts: Sequence[str]) -> np.ndarray:
    """Returns UTF-8 bytes as objects, because NumPy's own string type drops trailing NULs."""
    return np.array([text.encode() for text in texts], dtype=object)


def joined(ids: tf.RaggedTensor, first: np.ndarray, within: np.ndarray) -> tf.Tensor:
    """Returns the texts [B] of rows of ids, given the text of each id at the beginning of a row and elsewhere."""
    values = ids.flat_values
    is_first = tf.range(tf.size(values, tf.int64)) == tf.gather(ids.row_starts(), ids.value_rowids())
    pieces = tf.where(is_first, tf.gather(tf.constant(first), values), tf.gather(tf.constant(within), values))
    return tf.strings.reduce_join(ids.with_flat_values(pieces), axis=1)


def tidying() -> list[tuple[str, str]]:
    """Returns the replacements of `zoo.text.mapped_subwords.TIDY` as regular expressions, in order."""
    return [(re.escape(old), new) for old, new in TIDY]


def replaced(text: tf.Tensor, rules: Sequence[tuple[str, str]]) -> tf.Tensor:
    """Returns texts after all replacements, in order."""
    for pattern, new in rules:
        text = tf.strings.regex_replace(text, pattern, new)
    return text
