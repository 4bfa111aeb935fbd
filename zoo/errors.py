"""The error for invalid input that the user can fix."""

import difflib
from collections.abc import Iterable, Sequence


class InputError(ValueError):
    """Invalid input or usage; the message contains the received value and the fix.

    Commands print it as one line and exit with status 2.
    """


def unknown_name(kind: str, name: str, known: Iterable[str], meant: Sequence[str] = ()) -> InputError:
    """Returns the error for an unknown name of a kind, such as `"model"`; the message suggests similar names.

    Args:
        kind: The kind of name.
        name: The name.
        known: All known names.
        meant: Names that it may mean, if it is a synonym.
    """
    known = sorted(known)
    close = list(meant) or difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(close)}?" if close else f"Known: {', '.join(known)}."
    return InputError(f"Unknown {kind} {name!r}. {hint}")
