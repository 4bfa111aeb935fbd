"""Canonical composition in the graph."""

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from export.graph.tokenizers.tables import PagedTable
from zoo.text.code_points import NUM_CHARACTERS, code_ranges
from zoo.text.composition import LATER


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
