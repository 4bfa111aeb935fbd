"""WordPiece in the graph, by core operations on all words of a batch at once."""

import numpy as np
import tensorflow as tf

from export.graph.tokenizers.base import TokenizerGraph, joined, string_table, tokenizer_graph
from export.graph.tokenizers.tables import PagedTable, PairTable
from zoo.text import WordPieceTokenizer
from zoo.text.bert_characters import SPACE, character_classes
from zoo.text.code_points import NUM_CHARACTERS
from zoo.vocabulary import UNKNOWN

# The root nodes of the trees of the pieces at the beginning of a word and of those within a word.
_BEGINNING, _WITHIN = 0, 1
_NO_PIECE = -1
# How a character is normalized.
_UNCHANGED, _REPLACED, _REMOVED = range(3)


@tokenizer_graph.register(WordPieceTokenizer)
class WordPieceGraph(TokenizerGraph):
    """Splits words by the classes of neighbouring characters, and words into pieces by a tree of all pieces.

    First, the longest piece at every position of every word is looked up by descending the tree from all positions
    together. Then each word is split from its beginning: the next piece begins where one ends. Words that occur more
    than once are processed once.
    """

    def __init__(self, tokenizer: WordPieceTokenizer):
        super().__init__(tokenizer)
        self._max_word_length = tokenizer.max_word_length
        changes = tokenizer.reading.changes()
        actions = np.full(NUM_CHARACTERS, _UNCHANGED, np.uint8)
        actions[list(changes)] = [_REPLACED if text else _REMOVED for text in changes.values()]
        replaced = {code: text for code, text in changes.items() if text}
        self._actions, self._replaced = PagedTable(actions), np.array([*replaced, NUM_CHARACTERS], np.int32)
        self._count = np.array([*map(len, replaced.values()), 0], np.int32)
        self._first = np.cumsum(self._count, dtype=np.int32) - self._count
        self._read_codes = np.array(
            [ord(character) for text in replaced.values() for character in text] or [0], np.int32
        )
        self._classes = PagedTable(character_classes())
        self._children, self._piece_at = _tree(tokenizer.ids)
        self._surfaces = [string_table(surfaces) for surfaces in tokenizer.surfaces()]

    def encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        words = self._words(self._read_characters(tf.strings.unicode_decode(self._read(text), "UTF-8")))
        unique, occurrences = tf.unique(words.flat_values)
        ids = tf.gather(self._word_ids(unique), occurrences)  # [W, None]
        return words.with_flat_values(ids).merge_dims(1, 2)

    def _read_characters(self, characters: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the normalized code points [B, None] of code points [B, None]; see `zoo.text.bert_characters`."""
        codes = characters.flat_values
        actions = self._actions(codes)
        is_replaced = actions == _REPLACED
        place = tf.searchsorted(tf.constant(self._replaced), codes)
        counts = tf.where(
            is_replaced, tf.gather(tf.constant(self._count), place), tf.cast(actions != _REMOVED, tf.int32)
        )
        ends = tf.cumsum(counts)
        owner = tf.repeat(tf.range(tf.size(codes)), counts)
        within = tf.range(tf.size(owner)) - tf.gather(ends - counts, owner)
        source, is_replaced = (
            tf.gather(tf.gather(tf.constant(self._first), place), owner),
            tf.gather(is_replaced, owner),
        )
        replaced = tf.gather(tf.constant(self._read_codes), tf.where(is_replaced, source + within, 0))
        read = tf.where(is_replaced, replaced, tf.gather(codes, owner))
        row_splits = tf.gather(tf.concat([[0], ends], 0), characters.row_splits)
        return tf.RaggedTensor.from_row_splits(read, tf.cast(row_splits, tf.int64), validate=False)

    def _words(self, characters: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the words [B, None] of code points [B, None], without the spaces between them."""
        rows, classes = characters.value_rowids(), self._classes(characters.flat_values)
        # Each punctuation mark is a word; other words end where the class of characters or the text changes.
        begins = tf.concat([[True], (rows[1:] != rows[:-1]) | (classes[1:] != classes[:-1])], 0)[: tf.size(classes)]
        begins |= classes != 0
        is_word = classes != SPACE
        codes, begins = tf.boolean_mask(characters.flat_values, is_word), tf.boolean_mask(begins, is_word)
        first = tf.where(begins)[:, 0]
        splits = tf.concat([first, [tf.size(codes, tf.int64)]], 0)
        words = tf.strings.unicode_encode(tf.RaggedTensor.from_row_splits(codes, splits, validate=False), "UTF-8")
        owners = tf.gather(tf.boolean_mask(rows, is_word), first)
        return tf.RaggedTensor.from_value_rowids(words, owners, nrows=characters.nrows(), validate=False)

    def _word_ids(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids [W, None] of words [W], none of which is empty."""
        characters = tf.strings.unicode_decode(words, "UTF-8")
        owners = tf.cast(characters.value_rowids(), tf.int32)
        starts, ends = tf.cast(characters.row_starts(), tf.int32), tf.cast(characters.row_limits(), tf.int32)
        is_short = ends - starts <= self._max_word_length
        lengths, pieces = self._longest_pieces(characters.flat_values, owners, starts, ends, is_short)
        taken = _reached(lengths, tf.boolean_mask(starts, is_short), tf.gather(ends, owners))
        failed = tf.cast(taken & (pieces == _NO_PIECE), tf.int32)
        unknown = tf.gather((tf.math.unsorted_segment_sum(failed, owners, tf.size(words)) > 0) | ~is_short, owners)
        is_first = tf.range(tf.size(owners)) == tf.gather(starts, owners)
        selected = tf.where(unknown, is_first, taken)
        ids = tf.boolean_mask(tf.where(unknown, UNKNOWN, pieces), selected)
        rows = tf.cast(tf.boolean_mask(owners, selected), tf.int64)
        return tf.RaggedTensor.from_value_rowids(ids, rows, nrows=tf.size(words, tf.int64), validate=False)

    def _longest_pieces(
        self, codes: tf.Tensor, owners: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor, is_short: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns length [C] and id [C] of the longest piece at each character [C] of all words."""
        size = tf.size(codes)
        place = tf.boolean_mask(tf.range(size), tf.gather(is_short, owners))
        node = tf.where(place == tf.gather(starts, tf.gather(owners, place)), _BEGINNING, _WITHIN)
        state = (tf.constant(0), place, node, tf.zeros([size], tf.int32), tf.fill([size], _NO_PIECE))

        def descend(length, place, node, lengths, pieces):  # type: ignore[no-untyped-def]
            at = place + length
            inside = at < tf.gather(ends, tf.gather(owners, place))
            place, node, at = (tf.boolean_mask(tensor, inside) for tensor in (place, node, at))
            node = self._children(node, tf.gather(codes, at))
            place, node = (tf.boolean_mask(tensor, node >= 0) for tensor in (place, node))
            piece = tf.gather(tf.constant(self._piece_at), node)
            positions = tf.boolean_mask(place, piece >= 0)[:, None]
            lengths = tf.tensor_scatter_nd_update(lengths, positions, tf.fill([tf.size(positions)], length + 1))
            pieces = tf.tensor_scatter_nd_update(pieces, positions, tf.boolean_mask(piece, piece >= 0))
            return length + 1, place, node, lengths, pieces

        any_size = tf.TensorShape([None])
        *_, lengths, pieces = tf.while_loop(
            lambda length, place, *_: tf.size(place) > 0,
            descend,
            state,
            shape_invariants=(tf.TensorShape([]), any_size, any_size, any_size, any_size),
        )
        return lengths, pieces

    def _decode(self, ids: tf.RaggedTensor) -> tf.Tensor:
        return joined(ids, *self._surfaces)


def _tree(ids: dict[str, int]) -> tuple[PairTable, np.ndarray]:
    """Returns the tree of pieces: the child of each node by character, and the piece that ends at each node, or −1.

    The number of a pair of node and character is the number of the child, without the two root nodes.
    """
    children: dict[tuple[int, int], int] = {}
    piece_at: dict[int, int] = {}
    for piece, index in ids.items():
        is_within = piece.startswith("##") and len(piece) > 2
        node = _WITHIN if is_within else _BEGINNING
        for character in piece[2:] if is_within else piece:
            node = children.setdefault((node, ord(character)), len(children) + 2)
        piece_at[node] = index
    pairs = np.array(list(children), np.int64).reshape(-1, 2)
    nodes = np.full(len(children) + 2, _NO_PIECE, np.int32)
    nodes[list(piece_at)] = list(piece_at.values())
    return PairTable(pairs, max(len(nodes), NUM_CHARACTERS), first=2), nodes


def _reached(lengths: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
    """Returns at which positions [C] a piece of a word begins, given the longest piece's length [C] at each position.

    A length of 0 means no piece. The words begin at `starts`; `ends` is [C].
    """

    def step(places: tf.Tensor, reached: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        reached = tf.tensor_scatter_nd_update(reached, places[:, None], tf.ones_like(places, tf.bool))
        length = tf.gather(lengths, places)
        after = places + length
        return tf.boolean_mask(after, (length > 0) & (after < tf.gather(ends, places))), reached

    any_size = tf.TensorShape([None])
    _, reached = tf.while_loop(
        lambda places, reached: tf.size(places) > 0,
        step,
        (starts, tf.zeros([tf.size(lengths)], tf.bool)),
        shape_invariants=(any_size, any_size),
    )
    return reached
