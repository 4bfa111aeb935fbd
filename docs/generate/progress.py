"""Reports on standard error which part of the site is being made."""

import sys

MARK = "making "
"""The beginning of such a line; all other lines stay in the log."""


def making(what: str, number: int, total: int) -> None:
    """Writes that a page is begun.

    Args:
        what: The page.
        number: Its number, from 1.
        total: How many there are.
    """
    print(f"{MARK}{what} ({number} of {total})", file=sys.stderr, flush=True)
