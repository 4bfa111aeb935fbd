"""The first characters of words in the graph, found by comparing neighbouring characters."""

import tensorflow as tf

from export.graph.tokenizers.tables import PagedTable
from zoo.text.word_splits import CONTRACTIONS, GPT4, LETTER, NUMBER, OTHER, SINGLE_DIGITS, SPACE, character_classes

_BLANK, _APOSTROPHE, _LINE_FEED, _CARRIAGE_RETURN, _LONG_S = map(ord, " '\n\rſ")
_LINE_BREAK = 4
"""A further class of characters, besides those of `zoo.text.word_splits`."""
_NONE = -1
_LONGEST_NUMBER = 3


class WordStarts:
    """Finds where words begin by one of the rules of `zoo.text.word_splits`.

    Args:
        rule: The name of the rule.
    """

    def __init__(self, rule: str):
        self._is_gpt4, self._has_single_digits = rule.startswith(GPT4), rule.endswith(SINGLE_DIGITS)
        self._classes = PagedTable(character_classes())

    def __call__(self, codes: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Returns whether a word begins at each character of all texts, boolean [C].

        Args:
            codes: The code points of all texts, one after the other, int32 [C].
            rows: The number of the text of each character, from 1, int32 [C].
        """
        find = self._gpt4 if self._is_gpt4 else self._gpt2
        return find(codes, self._classes(codes), _Neighbours(rows))

    def _gpt2(self, codes: tf.Tensor, classes: tf.Tensor, neighbours: "_Neighbours") -> tf.Tensor:
        before, after = neighbours(classes, -1, _NONE), neighbours(classes, 1, _NONE)
        blank_before = neighbours(codes, -1, _NONE) == _BLANK
        # A space before a word belongs to it; of several spaces, the last is separated from the others.
        word_after = (after != SPACE) & (after != _NONE)
        begins = (classes != before) & ~blank_before
        if self._has_single_digits:  # each of which is separated from the texts before and after it
            word_after &= after != NUMBER
            begins |= classes == NUMBER
        begins = tf.where(classes == SPACE, (before != SPACE) | word_after, begins)
        opens = begins & (codes == _APOSTROPHE) & (before != OTHER)
        return _with_contractions(begins, opens, codes, classes, neighbours)

    def _gpt4(self, codes: tf.Tensor, classes: tf.Tensor, neighbours: "_Neighbours") -> tf.Tensor:
        is_break = (codes == _LINE_FEED) | (codes == _CARRIAGE_RETURN)
        classes = tf.where(is_break, _LINE_BREAK, classes)
        before, after = neighbours(classes, -1, _NONE), neighbours(classes, 1, _NONE)
        is_first = classes != before  # of its run of characters of one class

        places = tf.range(tf.size(codes))
        run, first = tf.cumsum(tf.cast(is_first, tf.int32)) - 1, tf.boolean_mask(places, is_first)
        within = places - tf.gather(first, run)
        before_run = tf.gather(tf.boolean_mask(before, is_first), run)
        after_run = tf.gather(tf.boolean_mask(after, classes != after), run)

        # Line breaks directly after other characters belong to them; others to the white space before them.
        belongs = is_break & (before_run == OTHER)
        begins_breaks = is_first & ~belongs & (before != SPACE)
        opens_spaces = (before != _LINE_BREAK) | neighbours(belongs, -1, False) | (after_run != _LINE_BREAK)
        is_last = (after != SPACE) & (after != _LINE_BREAK) & (after != _NONE)
        begins_spaces = (is_first & opens_spaces) | is_last
        begins_others = is_first & (neighbours(codes, -1, _NONE) != _BLANK)
        # One character other than a line break belongs to the letters after it, unless a blank belongs to it.
        joins = begins_others & (classes == OTHER)
        begins_letters = is_first & (before != SPACE) & ~neighbours(joins, -1, False)
        begins_numbers = within % (1 if self._has_single_digits else _LONGEST_NUMBER) == 0
        kinds = {
            LETTER: begins_letters,
            NUMBER: begins_numbers,
            OTHER: begins_others,
            SPACE: begins_spaces,
            _LINE_BREAK: begins_breaks,
        }
        begins = tf.reduce_any([(classes == kind) & begin for kind, begin in kinds.items()], 0)
        lower = tf.where(codes == _LONG_S, ord("s"), tf.where(codes < 128, codes | 32, codes))
        lower = tf.where(classes == LETTER, lower, codes)
        opens = joins & (codes == _APOSTROPHE)
        return _with_contractions(begins, opens, lower, classes, neighbours)


class _Neighbours:
    """A function for the values of characters at a distance within the same text."""

    def __init__(self, rows: tf.Tensor):
        self._rows = rows

    def __call__(self, values: tf.Tensor, offset: int, missing: int | bool) -> tf.Tensor:
        """Returns the values `offset` characters away, or `missing` if those are in another text."""
        return tf.where(shifted(self._rows, offset) == self._rows, shifted(values, offset), missing)


def _with_contractions(
    begins: tf.Tensor, opens: tf.Tensor, codes: tf.Tensor, classes: tf.Tensor, neighbours: _Neighbours
) -> tf.Tensor:
    """Returns where words begin [C], with each of the `CONTRACTIONS` at an opening apostrophe as one word."""
    for contraction in CONTRACTIONS:
        matches = opens
        for place, letter in enumerate(contraction[1:], start=1):
            matches &= neighbours(codes, place, _NONE) == ord(letter)
        for place in range(1, len(contraction)):
            begins &= ~neighbours(matches, -place, False)
        begins |= neighbours(matches, -len(contraction), False) & (classes == LETTER)
    return begins


def shifted(values: tf.Tensor, offset: int) -> tf.Tensor:
    """Returns a vector whose element i is element i + offset of another; zero or False beyond its ends.

    Texts and words are numbered from 1, so that positions beyond the ends belong to none of them.
    """
    fill = tf.zeros([tf.minimum(abs(offset), tf.size(values))], values.dtype)
    return tf.concat([values[offset:], fill], 0) if offset > 0 else tf.concat([fill, values[:offset]], 0)
