"""Lines that tell whoever builds the site what is being made."""

import sys

MARK = "making "
"""What they begin with; everything else stays in the log."""


def making(what: str, number: int, total: int) -> None:
    """Writes that a page is begun.

    Args:
        what: The page.
        number: Its number, from 1.
        total: How many there are.
    """
    print(f"{MARK}{what} ({number} of {total})", file=sys.stderr, flush=True)
