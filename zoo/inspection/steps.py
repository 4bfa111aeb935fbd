"""Names of steps, lookup of steps and their printed form."""

import difflib
from collections.abc import Iterable, Sequence

SYNONYMS = {
    "queries": ("query",),
    "keys": ("key",),
    "values": ("value",),
    "scores": ("scaled_scores", "raw_scores"),
    "raw_scores": ("scores",),
    "scaled_scores": ("scores",),
    "scaling": ("scaled_scores",),
    "softmax": ("weights",),
    "attention_weights": ("weights",),
    "heads": ("weighted_sum",),
    "context": ("weighted_sum",),
    "concat": ("concatenation",),
    "output_projection": ("output",),
}
"""Synonyms of the names of steps; a synonym stands for the first of its steps that exists."""


def find_step(name: object, known: Iterable[str]) -> str:
    """Returns the name of the step with this name or synonym.

    Raises:
        KeyError: If there is none; the message contains a similar name or all names.
    """
    known = list(known)
    if name in known:
        return str(name)
    wanted = str(name).strip().lower().replace(" ", "_")
    for candidate in (wanted, *SYNONYMS.get(wanted, ())):
        if candidate in known:
            return candidate
    close = difflib.get_close_matches(wanted, known, n=1) or known
    raise KeyError(f"There is no step {name!r}. Steps: {', '.join(close)}.")


def in_table(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Returns rows as lines with aligned columns; those in `right` are right-aligned."""
    to_right = set(right)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column in to_right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def shape_text(shape: Iterable[int]) -> str:
    """Returns the printed form of a shape, such as "[2, 3]"."""
    return f"[{', '.join(map(str, shape))}]"
