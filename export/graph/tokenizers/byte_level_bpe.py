"""Byte-level BPE in the graph, by core operations on all words of a batch at once."""

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from export.graph.tokenizers.base import TokenizerGraph, tokenizer_graph
from export.graph.tokenizers.tables import PagedTable, PairTable
from zoo.text import ByteLevelBPETokenizer
from zoo.text.code_points import NUM_CHARACTERS, code_ranges
from zoo.text.composition import LATER
from zoo.text.word_splits import CONTRACTIONS, LETTER, OTHER, SPACE, character_classes

_NO_RANK = np.iinfo(np.int32).max
_BLANK, _APOSTROPHE = ord(" "), ord("'")


@tokenizer_graph.register(ByteLevelBPETokenizer)
class ByteLevelBPEGraph(TokenizerGraph):
    """Splits words by comparing neighbouring characters, and merges in rounds: each merges every word's best pair.

    A round processes all words together; words that occur more than once are processed once.
    """

    def __init__(self, tokenizer: ByteLevelBPETokenizer):
        super().__init__(tokenizer)
        self._classes = PagedTable(character_classes())
        merges = np.array(tokenizer.merges, dtype=np.int64).reshape(-1, 3)
        self._ranks, self._merged = PairTable(merges[:, :2], tokenizer.vocab_size), merges[:, 2].astype(np.int32)
        self._byte_ids = np.array(tokenizer.byte_ids, dtype=np.int32)
        self._run_ids = np.array([0, 0, *tokenizer.runs], dtype=np.int32)
        self._has_runs = bool(tokenizer.runs)
        self._composition = Composition() if tokenizer.compose else None
        self._surfaces = np.array(tokenizer.surfaces(), dtype=object)

    def encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        characters = tf.strings.unicode_decode(self._read(text), "UTF-8")
        if self._composition is not None:
            characters = self._composition(characters)
        words = self._words(characters)
        unique, occurrences = tf.unique(words.flat_values)
        ids = tf.gather(self._word_ids(unique), occurrences)  # [W, None]
        return words.with_flat_values(ids).merge_dims(1, 2)

    def _words(self, characters: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the words [B, None] of code points [B, None]: see `zoo.text.word_splits`."""
        codes, rows = characters.flat_values, tf.cast(characters.value_rowids(), tf.int32) + 1
        starts = self._starts(codes, self._parts(codes, rows) if self._has_runs else rows)
        row_splits = tf.gather(tf.concat([[0], tf.cumsum(tf.cast(starts, tf.int64))], 0), characters.row_splits)
        first = tf.concat([tf.where(starts)[:, 0], [tf.size(codes, tf.int64)]], 0)
        words = tf.strings.unicode_encode(tf.RaggedTensor.from_row_splits(codes, first, validate=False), "UTF-8")
        return tf.RaggedTensor.from_row_splits(words, row_splits, validate=False)

    def _parts(self, codes: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Returns the part number [C] of each character; runs of spaces that are tokens separate the parts of a row.

        A run that is longer than the longest such token is split; a remaining single space belongs to no run.
        """
        longest, places = len(self._run_ids) - 1, tf.range(1, tf.size(codes) + 1)
        is_blank, same_before = codes == _BLANK, _shifted(rows, -1) == rows
        opens = is_blank & ~(_shifted(is_blank, -1) & same_before)
        closes = is_blank & ~(_shifted(is_blank, 1) & (_shifted(rows, 1) == rows))
        run = tf.cumsum(tf.cast(opens, tf.int32))
        first = tf.gather(tf.concat([[0], tf.boolean_mask(places, opens)], 0), run)
        last = tf.gather(tf.concat([[0], tf.boolean_mask(places, closes)], 0), run)
        within, length = places - first, last - first + 1
        is_single = (within == length - 1) & (within % longest == 0)
        in_token = is_blank & ~is_single
        begins = ~same_before | (in_token & (within % longest == 0)) | (~in_token & _shifted(in_token, -1))
        return tf.cumsum(tf.cast(begins, tf.int32))

    def _starts(self, codes: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Returns whether a word begins at each character of all rows, boolean [C]."""
        classes = self._classes(codes)

        def neighbours(values: tf.Tensor, offset: int, missing: int) -> tf.Tensor:
            """Returns the values `offset` characters away, or `missing` if those are in another row."""
            moved, moved_rows = (_shifted(tensor, offset) for tensor in (values, rows))
            return tf.where(moved_rows == rows, moved, missing)

        before, after = neighbours(classes, -1, -1), neighbours(classes, 1, -1)
        blank_before = neighbours(codes, -1, -1) == _BLANK
        is_space = classes == SPACE
        # A space before a word belongs to it; of several spaces, the last is separated from the others.
        begins = tf.where(
            is_space, (before != SPACE) | ((after != SPACE) & (after >= 0)), (classes != before) & ~blank_before
        )
        opens = begins & (codes == _APOSTROPHE) & (before != OTHER)
        for contraction in CONTRACTIONS:
            letters = contraction[1:]
            matches = opens
            for place, letter in enumerate(letters, start=1):
                matches &= neighbours(codes, place, -1) == ord(letter)
            for place in range(1, len(contraction)):
                begins &= ~neighbours(matches, -place, False)
            begins |= neighbours(matches, -len(contraction), False) & (classes == LETTER)
        return begins

    def _word_ids(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids [W, None] of words [W]."""
        codes = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8), tf.int32)
        owners = tf.repeat(tf.range(1, tf.size(words) + 1), tf.strings.length(words))
        ids = tf.gather(tf.constant(self._byte_ids), codes)
        if self._has_runs:
            ids, owners = self._runs_as_tokens(words, ids, owners)
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

    def _runs_as_tokens(self, words: tf.Tensor, ids: tf.Tensor, owners: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the ids of bytes [M] and their words [M], with one id for each run of spaces that is a token."""
        is_run = tf.strings.regex_full_match(words, "  +")
        run_ids = tf.gather(tf.constant(self._run_ids), tf.where(is_run, tf.strings.length(words), 0))
        in_run = tf.gather(is_run, owners - 1)
        ids = tf.where(in_run, tf.gather(run_ids, owners - 1), ids)
        is_first = ~in_run | (owners != _shifted(owners, -1))
        return tf.boolean_mask(ids, is_first), tf.boolean_mask(owners, is_first)

    def _merge_once(
        self, ids: tf.Tensor, owners: tf.Tensor, merged: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Merges the best pair of each word; returns ids [M], their words [M] and whether any pair was merged."""
        ranks = self._ranks(ids, _shifted(ids, 1))
        ranks = tf.where((ranks >= 0) & (owners == _shifted(owners, 1)), ranks, _NO_RANK)
        best = tf.gather(tf.math.segment_min(ranks, owners), owners)
        hits = (ranks == best) & (ranks < _NO_RANK)
        hits &= _is_even(hits)
        ids = tf.where(hits, tf.gather(tf.constant(self._merged), tf.where(hits, ranks, 0)), ids)
        remains = ~_shifted(hits, -1)
        return tf.boolean_mask(ids, remains), tf.boolean_mask(owners, remains), tf.reduce_any(hits)

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        pieces = tf.ragged.map_flat_values(tf.gather, tf.constant(self._surfaces), ids)
        joined = tf.strings.reduce_join(pieces, axis=1)
        return tf.strings.unicode_transcode(joined, "UTF-8", "UTF-8", errors="replace", replacement_char=0xFFFD)


def _shifted(values: tf.Tensor, offset: int) -> tf.Tensor:
    """Returns a vector whose element i is element i + offset of another; zero or False beyond its ends.

    Rows and words are numbered from 1, so that positions beyond the ends belong to none of them.
    """
    fill = tf.zeros([tf.minimum(abs(offset), tf.size(values))], values.dtype)
    return tf.concat([values[offset:], fill], 0) if offset > 0 else tf.concat([fill, values[:offset]], 0)


def _is_even(hits: tf.Tensor) -> tf.Tensor:
    """Returns whether each position has an even distance from the beginning of its run of adjacent hits [M]."""
    places = tf.range(tf.size(hits))
    first = tf.boolean_mask(places, hits & ~_shifted(hits, -1))
    run = tf.cumsum(tf.cast(hits & ~_shifted(hits, -1), tf.int32)) - 1
    start = tf.gather(tf.concat([first, [0]], 0), tf.maximum(run, 0))
    return (places - start) % 2 == 0


class Composition:
    """Composes texts by TensorFlow Text, which implements a newer Unicode version; see `zoo.text.composition`."""

    def __init__(self) -> None:
        later = np.zeros(NUM_CHARACTERS, np.uint8)
        for codes in code_ranges(LATER):
            later[codes] = 1
        self._later = PagedTable(later)

    def __call__(self, characters: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the composed code points [B, None] of code points [B, None]."""
        codes, row_splits = characters.flat_values, characters.row_splits
        apart = self._later(codes) == 1
        # Parts begin at the beginning of a text, at each such character and after it.
        begins = apart | tf.concat([[False], apart], 0)[:-1]
        first_of_rows = tf.boolean_mask(row_splits, row_splits < tf.size(codes, tf.int64))[:, None]
        begins = tf.tensor_scatter_nd_update(begins, first_of_rows, tf.ones_like(first_of_rows[:, 0], tf.bool))
        starts = tf.concat([tf.where(begins)[:, 0], [tf.size(codes, tf.int64)]], 0)
        parts = tf.strings.unicode_encode(tf.RaggedTensor.from_row_splits(codes, starts, validate=False), "UTF-8")
        composed = tf.strings.unicode_decode(tf_text.normalize_utf8(parts, "NFC"), "UTF-8")  # [parts, None]
        part_splits = tf.gather(tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int64))], 0), row_splits)
        return tf.RaggedTensor.from_row_splits(composed, part_splits, validate=False).merge_dims(1, 2)
