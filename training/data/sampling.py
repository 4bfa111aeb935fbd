"""Subword regularisation: draws segmentations of the texts at each step. Without Keras."""

import bisect
import itertools
from collections.abc import Sequence

import numpy as np

from zoo.errors import InputError
from zoo.text import SubwordTokenizer, Tokenizer
from zoo.vocabulary import SPECIAL_PIECES

NBEST = 64
"""Segmentations of a word that are drawn from: the most probable ones, `l` of Kudo 2018."""

_WORD = "▁"

_Drawing = tuple[list[tuple[int, ...]], list[float]]
"""Segmentations of a word, and the sums of their probabilities up to each."""


class SubwordSampler:
    """Draws segmentations of rows of subwords, word by word.

    `P(x) ∝ (Π p(xᵢ))^α` over the 64 most probable segmentations x of a word, where p is the tokenizer's unigram model.
    Words are independent in this model, so that texts are drawn as in Kudo 2018, but from ids alone: token shards need
    no texts. Words with an unknown token do not change.

    Args:
        tokenizer: The tokenizer of the rows.
        alpha: α: near 0, all segmentations are equally probable; if it is large, only the best one is drawn.

    Raises:
        InputError: The tokenizer has no unigram model.

    Reference:
        Kudo 2018, "Subword Regularization: Improving Neural Network Translation Models with Multiple Subword
        Candidates", sections 3.1 and 3.2, https://arxiv.org/abs/1804.10959
    """

    def __init__(self, tokenizer: Tokenizer, alpha: float):
        if not (isinstance(tokenizer, SubwordTokenizer) and tokenizer.is_unigram):
            raise InputError(f"data.sampling draws from a unigram model of subwords; {tokenizer.kind} have none.")
        self.tokenizer, self.alpha = tokenizer, alpha
        self._pieces = tokenizer.piece_table()
        self._begins = [
            token < len(SPECIAL_PIECES) or piece.startswith(_WORD) for token, piece in enumerate(self._pieces)
        ]
        self._drawings: dict[tuple[int, ...], _Drawing] = {}

    def __call__(self, rows: Sequence[Sequence[int]], seed: Sequence[int]) -> list[list[int]]:
        """Returns the rows in segmentations drawn by the seed alone; special tokens do not change."""
        words = [self._words(row) for row in rows]
        chances = iter(np.random.default_rng(seed).random(sum(map(len, words))).tolist())
        return [list(itertools.chain.from_iterable(self._draw(word, next(chances)) for word in row)) for row in words]

    def _words(self, row: Sequence[int]) -> list[tuple[int, ...]]:
        starts = [
            index
            for index, token in enumerate(row)
            if not index or self._begins[token] or row[index - 1] < len(SPECIAL_PIECES)
        ]
        return [tuple(row[start:end]) for start, end in itertools.pairwise([*starts, len(row)])]

    def _draw(self, word: tuple[int, ...], chance: float) -> tuple[int, ...]:
        drawing = self._drawings.get(word)
        if drawing is None:
            drawing = self._drawings[word] = self._drawing(word)
        segmentations, sums = drawing
        return segmentations[min(bisect.bisect_right(sums, chance), len(sums) - 1)]

    def _drawing(self, word: tuple[int, ...]) -> _Drawing:
        segmentations = self.tokenizer.segmentations("".join(self._pieces[token] for token in word), NBEST)
        if word not in [ids for ids, _ in segmentations]:  # it has an unknown token, or is truncated
            return [word], [1.0]
        logits = self.alpha * np.array([score for _, score in segmentations])
        probabilities = np.exp(logits - logits.max())
        return [ids for ids, _ in segmentations], np.cumsum(probabilities / probabilities.sum()).tolist()


def samplers(alpha: float, tokenizers: Sequence[Tokenizer]) -> list[SubwordSampler] | None:
    """Returns the sampler of each column, or `None` if α is 0."""
    return [SubwordSampler(tokenizer, alpha) for tokenizer in tokenizers] if alpha else None
