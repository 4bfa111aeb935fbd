"""IBM model 1: which target symbols translate which source symbols, by expectation-maximisation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.vocabulary import PAD

Array = NDArray[Any]

PART = 20_000
"""Pairs whose links are made together; from then on a link is the number of a cell of the table."""


def translation_table(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], iterations: int = 5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns how probably each source symbol is translated by each target symbol, `t(f | e)`, by IBM model 1.

    Each target symbol of a pair is linked to one source symbol or to none (the null symbol), all of them equally likely
    beforehand. In each iteration `c(f | e) = Σ_pairs Σ_{f, e} t(f | e) / Σ_e' t(f | e')`, where e' goes through the
    source symbols of the pair and null, and then `t(f | e) = c(f | e) / Σ_f' c(f' | e)`.

    Args:
        sources: Ids of each source.
        targets: Ids of each target.
        iterations: How often the table is computed anew; at first all t are equal.

    Returns:
        Source symbols, target symbols and probabilities, [N] each, of what occurs together in a pair, by source symbol
        and within these by target symbol. Those of null are left out.

    Reference:
        Brown et al. 1993, "The Mathematics of Statistical Machine Translation: Parameter Estimation", section 4.1,
        https://aclanthology.org/J93-2003
    """
    null = max((max(row, default=PAD) for row in sources), default=PAD) + 1
    width = max((max(row, default=PAD) for row in targets), default=PAD) + 1
    parts: list[tuple[Array, Array, Array]] = []  # cells of the table, which of them each link is, and `sizes`
    known: Array = np.empty(0, np.int64)
    for start in range(0, len(sources), PART):
        links, sizes = _links(sources[start : start + PART], targets[start : start + PART], null, width)
        if not len(links):
            continue
        cells, places = np.unique(links, return_inverse=True)
        parts.append((cells, places.astype(np.int32), sizes))
        known = np.union1d(known, cells)
    parts = [(np.searchsorted(known, cells), places, sizes) for cells, places, sizes in parts]
    owners: Array = known // width
    table: Array = np.ones(len(known))
    for _ in range(iterations):
        counts = np.zeros(len(known))
        for cells, places, sizes in parts:
            weights = table[cells][places]
            total = np.add.reduceat(weights, np.cumsum(sizes) - sizes)
            counts[cells] += np.bincount(places, weights / np.repeat(total, sizes))
        table = counts / np.bincount(owners, counts)[owners]
    real = owners != null
    return owners[real], known[real] % width, table[real]


def _links(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], null: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns all links as `source · width + target`, those of one target symbol together, and how many each has."""
    links, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for source, target in zip(sources, targets, strict=True):
        options = np.array([*source, null], np.int64) * width
        links.append((options[None] + np.array(target, np.int64)[:, None]).ravel())
        sizes.append(np.full(len(target), len(options)))
    return np.concatenate(links), np.concatenate(sizes)


def most_probable(table: tuple[np.ndarray, np.ndarray, np.ndarray], symbols: int, best: int) -> np.ndarray:
    """Returns the most probable target symbols of each source symbol, then padding, int32 [symbols, best].

    Args:
        table: From `translation_table`.
        symbols: Number of source symbols.
        best: How many at most; of equally probable ones the lower ids.
    """
    source, target, probability = table
    order = np.lexsort((target, -probability, source))
    source, target = source[order], target[order]
    place = np.arange(len(source)) - np.searchsorted(source, source)
    kept = place < best
    result = np.full((symbols, best), PAD, np.int32)
    result[source[kept], place[kept]] = target[kept]
    return result
