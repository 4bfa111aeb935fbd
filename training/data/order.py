"""Assigns examples to the batch of each step: two orders, both functions of only the seed and the step."""

import abc
import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.data.shards.permutation import Permutation, in_orders

Array = NDArray[Any]

# Examples sorted together: large enough for little padding, small enough that batches differ between epochs.
WINDOW = 8192
# Smallest number of batches that exchange examples from epoch to epoch; more would need more padding.
_BATCHES_OF_A_STRATUM = 8
# Batches that are planned at once.
_STEPS_TOGETHER = 64


def padded(lengths: Array, static_shapes: bool) -> Array:
    """Returns the lengths that examples are padded to, [N, sides], for lengths of that shape.

    With `static_shapes`, all sides are padded to one of few sizes: 8, 16, 24, 32, 48, 64 … If a backend
    compiles each shape, that takes half a minute per shape, longer than computing a few more tokens of padding.
    """
    if not static_shapes:
        return lengths
    longest = np.maximum(lengths.max(axis=1, keepdims=True), 8)
    power = 2 ** np.ceil(np.log2(longest)).astype(lengths.dtype)
    middle = power // 4 * 3
    sizes = np.where((longest <= middle) & (middle > 12), middle, power)
    return np.broadcast_to(sizes, lengths.shape)


def batch_plan(lengths: Array, batch_tokens: int, rng: np.random.Generator, static_shapes: bool = False) -> list[Array]:
    """Returns the examples of each batch of one epoch, in random order.

    Args:
        lengths: Tokens on each side of each example, [N, sides].
        batch_tokens: Largest number of tokens of a batch on its longest side, padding included; a longer example is
            a batch of its own.
        rng: Source of randomness.
        static_shapes: Whether to pad to few different shapes; see `padded`.
    """
    sizes = padded(lengths, static_shapes)
    order = rng.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), WINDOW):
        window = order[start : start + WINDOW]
        window = window[np.lexsort(sizes[window].T)]
        batches += _split_into_batches(window, sizes.max(axis=1), batch_tokens)
    return [batches[index] for index in rng.permutation(len(batches))]


def _split_into_batches(order: Array, sizes: Array, batch_tokens: int) -> list[Array]:
    batches, first, longest = [], 0, 0
    for position, example in enumerate(order):
        longest = max(longest, sizes[example])
        if position > first and longest * (position + 1 - first) > batch_tokens:
            batches.append(order[first:position])
            first, longest = position, sizes[example]
    return [*batches, order[first:]]


class Order(abc.ABC):
    """The examples of the batch of each step."""

    @abc.abstractmethod
    def pass_length(self) -> int:
        """Returns the number of batches in one pass over the data, the first one if they differ."""

    @abc.abstractmethod
    def examples_of(self, step: int) -> Array:
        """Returns the indices of the examples in the batch of a step, counted from the start of the run."""


class SortedWindows(Order):
    """Each epoch has another order, in windows that are sorted by length; see `batch_plan`.

    A whole epoch is planned at once, for corpora in memory.

    Args:
        lengths: See `batch_plan`.
        batch_tokens: See `batch_plan`.
        seed: Seed of the order.
        static_shapes: See `batch_plan`.
    """

    def __init__(self, lengths: Array, batch_tokens: int, seed: int, static_shapes: bool):
        self.lengths, self.batch_tokens, self.seed, self.static_shapes = lengths, batch_tokens, seed, static_shapes
        self._epoch, self._first_step, self._plan = 0, 0, self._make_plan(0)

    def pass_length(self) -> int:
        return len(self._plan)

    def examples_of(self, step: int) -> Array:
        if step < self._first_step:
            self._epoch, self._first_step, self._plan = 0, 0, self._make_plan(0)
        while step >= self._first_step + len(self._plan):
            self._first_step += len(self._plan)
            self._epoch += 1
            self._plan = self._make_plan(self._epoch)
        return self._plan[step - self._first_step]

    def _make_plan(self, epoch: int) -> list[Array]:
        rng = np.random.default_rng([self.seed, epoch])
        return batch_plan(self.lengths, self.batch_tokens, rng, self.static_shapes)


class ByLength(NamedTuple):
    """The examples of a corpus, sorted by the lengths of their sides, first by that of the longest side."""

    lengths: Array  # tokens on each side, of each different combination, [C, sides], in that order
    counts: Array  # examples with each combination, [C]
    examples: Array  # the indices of all examples, [N]; may be mapped from a file


class Strata(Order):
    """Each epoch has another order, in which every batch is computed independently: for corpora of any size.

    The examples in the order of their lengths are divided into strata once. A stratum ends where it has enough
    examples for eight batches, and never between examples of the same lengths. Each epoch draws the examples of each
    batch from its stratum, and the order of the batches of all strata. Both are instances of `Permutation`, so that no
    index is kept in memory, and the batch of step 1,000,000 is computed as fast as the first.

    An epoch has the same number of batches for every seed, and contains each example once.

    Args:
        corpus: The examples in the order of their lengths.
        batch_tokens: See `batch_plan`.
        seed: Seed of the order.
        static_shapes: See `batch_plan`.
        limit: Largest length, at which longer examples are cut.
    """

    def __init__(
        self, corpus: ByLength, batch_tokens: int, seed: int, static_shapes: bool = False, limit: int | None = None
    ):
        self.corpus, self.seed = corpus, seed
        longest = corpus.lengths.max(axis=1).astype(np.int64)
        longest = longest if limit is None else np.minimum(longest, limit)
        most_rows = np.maximum(batch_tokens // padded(longest[:, None], static_shapes)[:, 0], 1)
        ends = np.cumsum(corpus.counts.astype(np.int64))
        starts, batches, first = [0], [], 0
        # The order is by increasing length, so the last example of a stratum is its longest.
        for end, rows in zip(ends, most_rows, strict=True):
            if end - first >= _BATCHES_OF_A_STRATUM * rows or end == ends[-1]:
                starts.append(int(end))
                batches.append(-(-(end - first) // rows))
                first = end
        self._starts, self._first_batches = np.array(starts), np.cumsum([0, *batches])
        self._planned: tuple[int, list[Array]] = -1, []

    def pass_length(self) -> int:
        return int(self._first_batches[-1])

    def examples_of(self, step: int) -> Array:
        block, offset = divmod(step, _STEPS_TOGETHER)
        planned = self._planned  # read once, since another thread may replace it
        if planned[0] != block:
            planned = self._planned = block, self._plan(block * _STEPS_TOGETHER + np.arange(_STEPS_TOGETHER))
        return planned[1][offset]

    def _plan(self, steps: Array) -> list[Array]:
        """Returns the examples of the batches of several steps, which is faster than one after the other."""
        epochs, offsets = (numbers.tolist() for numbers in np.divmod(steps, self.pass_length()))
        orders = [_order(self.pass_length(), self.seed, epoch) for epoch in epochs]
        batches = np.concatenate(in_orders(orders, [[offset] for offset in offsets]))
        strata = np.searchsorted(self._first_batches, batches, side="right") - 1
        firsts, sizes = self._starts[strata], self._starts[strata + 1] - self._starts[strata]
        numbers = batches - self._first_batches[strata]
        counts = self._first_batches[strata + 1] - self._first_batches[strata]
        # Batches of equal size, instead of a small last one.
        edges = np.stack([sizes * numbers // counts, sizes * (numbers + 1) // counts], axis=1).tolist()
        orders = [
            _order(size, self.seed, epoch, stratum + 1)
            for size, epoch, stratum in zip(sizes.tolist(), epochs, strata.tolist(), strict=True)
        ]
        members = in_orders(orders, [np.arange(*edge) for edge in edges])
        indices = np.concatenate([first + own for first, own in zip(firsts, members, strict=True)])
        return np.split(self.corpus.examples[indices].astype(np.int64), np.cumsum([len(own) for own in members])[:-1])


@functools.lru_cache(maxsize=4096)
def _order(size: int, *seed: int) -> Permutation:
    return Permutation(size, *seed)
