"""IBM model 1: which target tokens translate which source tokens, by expectation-maximisation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.vocabulary import PAD

Array = NDArray[Any]

PART = 20_000
"""Number of pairs that are converted together to indices of cells of the table, which limits the memory."""


def translation_table(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], iterations: int = 5
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns how probably each source token is translated by each target token, `t(f | e)`, by IBM model 1.

    Each target token of a pair is linked to one source token or to none (the null token), all of them equally likely
    beforehand. In each iteration `c(f | e) = Σ_pairs Σ_{f, e} t(f | e) / Σ_e' t(f | e')`, where e' goes through the
    source tokens of the pair and null, and then `t(f | e) = c(f | e) / Σ_f' c(f' | e)`.

    Args:
        sources: Ids of each source.
        targets: Ids of each target.
        iterations: Number of updates of the table; at first all t are equal.

    Returns:
        Source tokens, target tokens and probabilities, [N] each, of all that occur together in a pair, sorted by
        source token and then by target token. Those of null are left out.

    Reference:
        Brown et al. 1993, "The Mathematics of Statistical Machine Translation: Parameter Estimation", section 4.1,
        https://aclanthology.org/J93-2003
    """
    null = max((max(row, default=PAD) for row in sources), default=PAD) + 1
    width = max((max(row, default=PAD) for row in targets), default=PAD) + 1
    parts: list[tuple[Array, Array, Array]] = []  # cells of the table, the cell of each link, and `sizes`
    all_cells: Array = np.empty(0, np.int64)
    for start in range(0, len(sources), PART):
        links, sizes = _links(sources[start : start + PART], targets[start : start + PART], null, width)
        if not len(links):
            continue
        cells, positions = np.unique(links, return_inverse=True)
        parts.append((cells, positions.astype(np.int32), sizes))
        all_cells = np.union1d(all_cells, cells)
    parts = [(np.searchsorted(all_cells, cells), positions, sizes) for cells, positions, sizes in parts]
    owners: Array = all_cells // width
    table: Array = np.ones(len(all_cells))
    for _ in range(iterations):
        counts = np.zeros(len(all_cells))
        for cells, positions, sizes in parts:
            weights = table[cells][positions]
            total = np.add.reduceat(weights, np.cumsum(sizes) - sizes)
            counts[cells] += np.bincount(positions, weights / np.repeat(total, sizes))
        table = counts / np.bincount(owners, counts)[owners]
    real = owners != null
    return owners[real], all_cells[real] % width, table[real]


def _links(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], null: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns all links as `source · width + target`, grouped by target token, and the size of each group."""
    links, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for source, target in zip(sources, targets, strict=True):
        options = np.array([*source, null], np.int64) * width
        links.append((options[None] + np.array(target, np.int64)[:, None]).ravel())
        sizes.append(np.full(len(target), len(options)))
    return np.concatenate(links), np.concatenate(sizes)


def most_probable(table: tuple[np.ndarray, np.ndarray, np.ndarray], tokens: int, best: int) -> np.ndarray:
    """Returns the most probable target tokens of each source token, then padding, int32 [tokens, best].

    Args:
        table: From `translation_table`.
        tokens: Number of source tokens.
        best: Largest number of target tokens; among equally probable ones, lower ids come first.
    """
    source, target, probability = table
    order = np.lexsort((target, -probability, source))
    source, target = source[order], target[order]
    rank = np.arange(len(source)) - np.searchsorted(source, source)
    is_best = rank < best
    result = np.full((tokens, best), PAD, np.int32)
    result[source[is_best], rank[is_best]] = target[is_best]
    return result
