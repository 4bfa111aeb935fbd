"""Batches of about equally many symbols, made of rows in flat arrays. NumPy only."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import ArrayLike, NDArray

from training.data.order import ByLength, Order, SortedWindows, Strata
from training.data.shards.rows import Rows
from zoo.vocabulary import PAD, START

Array = NDArray[Any]
Batch = tuple[dict[str, Array], Array, Array]
"""Inputs, outputs and their weights."""

AnyRows = Rows | Sequence[Sequence[int]]
"""Rows of ids, as flat arrays or as lists."""


class Batches(keras.utils.PyDataset):
    """Rounds of batches for `fit`: `(inputs, outputs, weights)`.

    The batch of a step depends on the seed and the number of the step alone, so that a resumed run sees what the
    interrupted one would have seen.

    Args:
        steps: Batches in a round; `None` for one pass over the data in each round.

    Attributes:
        round: Number of the current round, to be set before each.
        symbols: Number of real symbols in the batch of each step that was asked for. (Another thread makes batches
            ahead of time.)
        structure: The axes of a batch, a letter each.
    """

    structure: tuple[dict[str, str], str, str]

    def __init__(self, steps: int | None = None):
        super().__init__()
        self.steps = steps
        self.round = 0
        self.symbols: dict[int, int] = {}

    def pass_length(self) -> int:
        """Returns how many batches one pass over the data has."""
        raise NotImplementedError

    def batch_of(self, step: int) -> tuple[Batch, int]:
        """Returns the batch of a step, counted from the start of the run, and its number of real symbols."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.steps or self.pass_length()

    def __getitem__(self, index: int) -> Batch:
        step = self.round * len(self) + index
        batch, self.symbols[step] = self.batch_of(step)
        return batch


class PlannedBatches(Batches):
    """Batches of examples of about equal length, each epoch in another order.

    Args:
        sides: The rows of each side of the examples, of which a batch is made.
        batch_tokens: Largest number of symbols of a batch on its longest side, padding included; a longer example is
            a batch of its own.
        steps: See `Batches`; with `None` all rounds are the same.
        seed: Seed of the order.
        static_shapes: Pad to few different shapes, for backends that compile each of them.
        corpus: The examples in the order of their lengths, for `Strata`. Default: `SortedWindows`.
    """

    def __init__(
        self,
        sides: Sequence[Rows],
        batch_tokens: int,
        steps: int | None = None,
        seed: int = 0,
        static_shapes: bool = False,
        corpus: ByLength | None = None,
    ):
        super().__init__(steps)
        self.sides, self.batch_tokens, self.static_shapes = sides, batch_tokens, static_shapes
        self.round_to = 8 if static_shapes else 1
        self.order: Order
        if corpus is None:
            lengths = np.stack([rows.all_lengths() for rows in sides], axis=1)
            self.order = SortedWindows(lengths, batch_tokens, seed, self.round_to)
        else:
            self.order = Strata(corpus, batch_tokens, seed, self.round_to, sides[0].limit)

    def make(self, examples: Array, widths: Array, num_rows: int) -> Batch:
        """Returns a batch.

        Args:
            examples: The numbers of its examples.
            widths: Symbols in a row, padding included, on each side.
            num_rows: Rows, at least as many as there are examples; the others are padding.
        """
        raise NotImplementedError

    def pass_length(self) -> int:
        return self.order.pass_length()

    def batch_of(self, step: int) -> tuple[Batch, int]:
        examples = self.order.examples_of(step)
        lengths = np.stack([rows.lengths(examples) for rows in self.sides], axis=1)
        widths = -(-lengths.max(axis=0) // self.round_to) * self.round_to
        num_rows = len(examples)
        if self.static_shapes:
            num_rows = max(num_rows, self.batch_tokens // int(widths.max()))
        return self.make(examples, widths, num_rows), int(lengths[:, -1].sum())


def _as_rows(rows: AnyRows) -> Rows:
    return rows if isinstance(rows, Rows) else Rows.of(rows)


def _next_symbols(rows: Rows, examples: Array, width: int, num_rows: int) -> tuple[Array, Array, Array]:
    """Returns rows that begin with the start symbol, the symbols that follow, and which of them are real."""
    outputs = rows.gather(examples, width, num_rows)
    inputs = np.full_like(outputs, START)
    inputs[:, 1:] = outputs[:, :-1]
    inputs[outputs == PAD] = PAD
    return inputs, outputs, (outputs != PAD).astype(np.float32)


class PairBatches(PlannedBatches):
    """Parallel text: `({"source", "target"}, next target symbols, weights)`.

    Args:
        source: Ids of each source sentence, the end included.
        target: Ids of each target sentence, the end included.
        links: Places of symbols that belong together, [links, 2] of each pair, source first: batches then have an
            `alignment` [B, T, S], 1 for those. Or `None`.
        **plan: See `PlannedBatches`.
    """

    structure = ({"source": "bs", "target": "bt"}, "bt", "bt")

    def __init__(self, source: AnyRows, target: AnyRows, links: Sequence[Array] | None = None, **plan: Any):
        self.source, self.target, self.links = _as_rows(source), _as_rows(target), links
        super().__init__([self.source, self.target], **plan)
        if links is not None:
            self.structure = ({"source": "bs", "target": "bt", "alignment": "bts"}, "bt", "bt")

    def make(self, examples: Array, widths: Array, num_rows: int) -> Batch:
        source = self.source.gather(examples, widths[0], num_rows)
        target, outputs, weights = _next_symbols(self.target, examples, widths[1], num_rows)
        inputs = {"source": source, "target": target}
        if self.links is not None:
            inputs["alignment"] = self._alignment([self.links[i] for i in examples], (*outputs.shape, source.shape[1]))
        return inputs, outputs, weights

    @staticmethod
    def _alignment(links: Sequence[Array], shape: tuple[int, ...]) -> Array:
        alignment = np.zeros(shape, np.int32)
        for row, places in enumerate(links):
            inside = places[(places[:, 0] < shape[2]) & (places[:, 1] < shape[1])]  # long examples are cut
            alignment[row, inside[:, 1], inside[:, 0]] = 1
        return alignment


class LabelledBatches(PlannedBatches):
    """Labelled text: `({"tokens"}, classes, weights)`.

    Args:
        rows: Ids of each text, the end included.
        classes: The class of each text, an integer.
        **plan: See `PlannedBatches`.
    """

    structure = ({"tokens": "bs"}, "b", "b")

    def __init__(self, rows: AnyRows, classes: ArrayLike, **plan: Any):
        self.rows, self.classes = _as_rows(rows), np.asarray(classes, np.int32)
        super().__init__([self.rows], **plan)

    def make(self, examples: Array, widths: Array, num_rows: int) -> Batch:
        # A row of padding would be a text without symbols, which no model accepts: the last text is repeated instead.
        chosen = np.concatenate([examples, np.repeat(examples[-1:], num_rows - len(examples))])
        weights = (np.arange(num_rows) < len(examples)).astype(np.float32)
        return {"tokens": self.rows.gather(chosen, widths[0])}, self.classes[chosen], weights


class DocumentBatches(PlannedBatches):
    """Separate texts of a language: `({"tokens"}, next symbols, weights)`.

    Args:
        rows: Ids of each text, the end included, or of parts of texts.
        **plan: See `PlannedBatches`.
    """

    structure = ({"tokens": "bt"}, "bt", "bt")

    def __init__(self, rows: AnyRows, **plan: Any):
        self.rows = _as_rows(rows)
        super().__init__([self.rows], **plan)

    def make(self, examples: Array, widths: Array, num_rows: int) -> Batch:
        tokens, outputs, weights = _next_symbols(self.rows, examples, widths[0], num_rows)
        return {"tokens": tokens}, outputs, weights


class WindowBatches(Batches):
    """Windows of a running text: `({"tokens"}, next symbols, weights)`; each begins with the start symbol.

    In training they begin anywhere. In one pass over the data they follow each other, overlapping by one symbol, which
    the second one does not predict: so every symbol counts once, all but the first after at least one other.

    Args:
        stream: Ids of the text, or of its parts, which follow each other.
        length: Symbols in a window, without the start symbol.
        batch_tokens: Largest number of symbols in a batch, without start symbols.
        steps: See `Batches`.
        seed: Seed of the windows' places.
    """

    structure = ({"tokens": "bt"}, "bt", "bt")

    def __init__(
        self, stream: Rows | Sequence[int], length: int, batch_tokens: int, steps: int | None = None, seed: int = 0
    ):
        super().__init__(steps)
        self.stream = stream if isinstance(stream, Rows) else Rows.of([stream])
        self.size = self.stream.num_values
        self.length = min(length, self.size - 1)
        self.rows, self.seed = max(1, batch_tokens // max(self.length, 1)), seed

    def pass_length(self) -> int:
        return -(-self._num_windows() // self.rows)

    def batch_of(self, step: int) -> tuple[Batch, int]:
        if self.steps:
            places = np.random.default_rng([self.seed, step]).integers(self.size - self.length, size=self.rows)
        else:
            first = step % len(self) * self.rows
            places = np.arange(first, min(first + self.rows, self._num_windows())) * self.length
        positions = places[:, None] + np.arange(self.length + 1)
        inside = positions < self.size
        outputs = np.where(inside, self.stream.take(np.minimum(positions, self.size - 1)), PAD).astype(np.int32)
        tokens = np.concatenate([np.full((len(places), 1), START, np.int32), outputs[:, :-1]], axis=1)
        weights = inside.astype(np.float32)
        if not self.steps:
            weights[places > 0, 0] = 0.0
        return ({"tokens": tokens}, outputs, weights), int(weights.sum())

    def _num_windows(self) -> int:
        return max(1, -(-(self.size - 1) // max(self.length, 1)))
