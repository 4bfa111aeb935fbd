"""Byte-level BPE in the graph, by core operations on all words of a batch at once."""

import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from export.graph.tokenizers.base import TokenizerGraph, tokenizer_graph
from export.graph.tokenizers.tables import PagedTable, PairTable, StringTable
from export.graph.tokenizers.word_starts import WordStarts, shifted
from zoo.text import ByteLevelBPETokenizer
from zoo.text.byte_level_bpe import byte_alphabet
from zoo.text.code_points import NUM_CHARACTERS, code_ranges
from zoo.text.composition import LATER

_NO_RANK = np.iinfo(np.int32).max
_BREAK, _MARK = b"\xff", b"\xfe"
"""Bytes that no text in UTF-8 contains: the first separates parts of a text, the second marks each added token."""


@tokenizer_graph.register(ByteLevelBPETokenizer)
class ByteLevelBPEGraph(TokenizerGraph):
    """Splits words by comparing neighbouring characters, and merges the best pair of every word in each round.

    A round processes all words together; words that occur more than once are processed once.
    """

    def __init__(self, tokenizer: ByteLevelBPETokenizer):
        super().__init__(tokenizer)
        self._starts = WordStarts(tokenizer.words)
        merges = np.array(tokenizer.merges, dtype=np.int64).reshape(-1, 3)
        self._ranks, self._merged = PairTable(merges[:, :2], tokenizer.vocab_size), merges[:, 2].astype(np.int32)
        self._byte_ids = np.array(tokenizer.byte_ids, dtype=np.int32)
        self._whole_words = _whole_words(tokenizer)
        added = {_MARK + text.encode(): index for text, index in tokenizer.added_ids.items()}
        self._compose = Composition() if tokenizer.compose else tf.identity
        patterns = (_pattern(tokenizer.added_texts(is_composed)) for is_composed in (False, True))
        steps = zip(patterns, (tf.identity, self._compose), strict=True)
        self._patterns = [(pattern, compose) for pattern, compose in steps if pattern or compose is not tf.identity]
        self._added = StringTable(added) if added else None
        self._surfaces = np.array(tokenizer.surfaces(), dtype=object)

    def encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        text = self._read(text)
        if self._added is None:
            return self._text_ids(self._compose(text))
        parts = self._separated(tf.RaggedTensor.from_tensor(text[:, None]))
        flat = parts.flat_values  # [P]
        added = self._added(flat)
        is_added = added >= 0
        added = tf.RaggedTensor.from_row_lengths(tf.boolean_mask(added, is_added), tf.cast(is_added, tf.int64))
        ids = tf.concat([self._text_ids(tf.where(is_added, "", flat)), added], 1)  # one of the two is empty
        return parts.with_flat_values(ids).merge_dims(1, 2)

    def _separated(self, parts: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the parts [B, None] of texts [B, 1]; added tokens are separate parts that begin with `_MARK`."""
        for pattern, compose in self._patterns:
            texts, is_marked = parts.flat_values, tf.strings.substr(parts.flat_values, 0, 1) == _MARK
            separated = compose(texts)
            if pattern:
                separated = tf.strings.regex_replace(separated, pattern, _BREAK + _MARK + rb"\1" + _BREAK)
            texts = tf.strings.split(tf.where(is_marked, texts, separated), _BREAK)
            parts = parts.with_flat_values(texts).merge_dims(1, 2)
        return parts

    def _text_ids(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids [P, None] of texts [P] without added tokens."""
        characters = tf.strings.unicode_decode(text, "UTF-8")
        codes = characters.flat_values
        starts = self._starts(codes, tf.cast(characters.value_rowids(), tf.int32) + 1)
        row_splits = tf.gather(tf.concat([[0], tf.cumsum(tf.cast(starts, tf.int64))], 0), characters.row_splits)
        first = tf.concat([tf.where(starts)[:, 0], [tf.size(codes, tf.int64)]], 0)
        words = tf.strings.unicode_encode(tf.RaggedTensor.from_row_splits(codes, first, validate=False), "UTF-8")
        unique, occurrences = tf.unique(words)
        ids = tf.gather(self._word_ids(unique), occurrences)  # [W, None]
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False).merge_dims(1, 2)

    def _word_ids(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids [W, None] of words [W]."""
        codes = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8), tf.int32)
        owners = tf.repeat(tf.range(1, tf.size(words) + 1), tf.strings.length(words))
        ids = tf.gather(tf.constant(self._byte_ids), codes)
        if self._whole_words is not None:
            whole = tf.gather(self._whole_words(words), owners - 1)
            ids = tf.where(whole >= 0, whole, ids)
            remains = (whole < 0) | (owners != shifted(owners, -1))
            ids, owners = tf.boolean_mask(ids, remains), tf.boolean_mask(owners, remains)
        unlimited = tf.TensorShape([None])
        ids, owners, _ = tf.while_loop(
            lambda ids, owners, merged: merged,
            self._merge_once,
            (ids, owners, tf.constant(True)),
            shape_invariants=(unlimited, unlimited, tf.TensorShape([])),
        )
        return tf.RaggedTensor.from_value_rowids(
            ids, tf.cast(owners - 1, tf.int64), nrows=tf.size(words, tf.int64), validate=False
        )

    def _merge_once(
        self, ids: tf.Tensor, owners: tf.Tensor, merged: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Merges the best pair of each word; returns ids [M], their words [M] and whether any pair was merged."""
        ranks = self._ranks(ids, shifted(ids, 1))
        ranks = tf.where((ranks >= 0) & (owners == shifted(owners, 1)), ranks, _NO_RANK)
        best = tf.gather(tf.math.segment_min(ranks, owners), owners)
        hits = (ranks == best) & (ranks < _NO_RANK)
        hits &= _is_even(hits)
        ids = tf.where(hits, tf.gather(tf.constant(self._merged), tf.where(hits, ranks, 0)), ids)
        remains = ~shifted(hits, -1)
        return tf.boolean_mask(ids, remains), tf.boolean_mask(owners, remains), tf.reduce_any(hits)

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        pieces = tf.ragged.map_flat_values(tf.gather, tf.constant(self._surfaces), ids)
        joined = tf.strings.reduce_join(pieces, axis=1)
        return tf.strings.unicode_transcode(joined, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)


def _is_even(hits: tf.Tensor) -> tf.Tensor:
    """Returns whether each position has an even distance from the beginning of its run of adjacent hits [M]."""
    places = tf.range(tf.size(hits))
    first = tf.boolean_mask(places, hits & ~shifted(hits, -1))
    run = tf.cumsum(tf.cast(hits & ~shifted(hits, -1), tf.int32)) - 1
    start = tf.gather(tf.concat([first, [0]], 0), tf.maximum(run, 0))
    return (places - start) % 2 == 0


def _pattern(texts: Sequence[str]) -> bytes:
    """Returns the regular expression of RE2 that matches any of the texts, preferring earlier ones; empty for none."""
    return f"({'|'.join(map(re.escape, texts))})".encode() if texts else b""


def _whole_words(tokenizer: ByteLevelBPETokenizer) -> StringTable | None:
    """Returns the ids of words that are pieces although their merges lead to other ids."""
    if not tokenizer.whole_words:
        return None
    values = {character: byte for byte, character in enumerate(byte_alphabet())}
    pieces = {bytes(map(values.__getitem__, piece)): index for piece, index in tokenizer.ids.items()}
    words = {piece: index for piece, index in pieces.items() if tokenizer.merged(piece) != (index,)}
    return StringTable(words) if words else None


class Composition:
    """Composes texts by TensorFlow Text, which implements a newer Unicode version; see `zoo.text.composition`."""

    def __init__(self) -> None:
        later = np.zeros(NUM_CHARACTERS, np.uint8)
        for codes in code_ranges(LATER):
            later[codes] = 1
        self._later = PagedTable(later)

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns texts [P] after composition."""
        characters = tf.strings.unicode_decode(texts, "UTF-8")
        codes, row_splits = characters.flat_values, characters.row_splits
        apart = self._later(codes) == 1
        # Parts begin at the beginning of a text, at each character of `LATER` and after it.
        begins = apart | tf.concat([[False], apart], 0)[:-1]
        first_of_rows = tf.boolean_mask(row_splits, row_splits < tf.size(codes, tf.int64))[:, None]
        begins = tf.tensor_scatter_nd_update(begins, first_of_rows, tf.ones_like(first_of_rows[:, 0], tf.bool))
        starts = tf.concat([tf.where(begins)[:, 0], [tf.size(codes, tf.int64)]], 0)
        parts = tf.strings.unicode_encode(tf.RaggedTensor.from_row_splits(codes, starts, validate=False), "UTF-8")
        part_splits = tf.gather(tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int64))], 0), row_splits)
        composed = tf.RaggedTensor.from_row_splits(tf_text.normalize_utf8(parts, "NFC"), part_splits, validate=False)
        return tf.strings.reduce_join(composed, axis=1)
