"""The one error that means: the input is wrong, and the user can fix it."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input or bad usage; the message names what was received and the fix.

    Commands print it as one line and exit with status 2.
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Returns the error for a name that is no known one of a kind, such as `"model"`; it names the close ones."""
    known = sorted(known)
    close = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(close)}?" if close else f"Known: {', '.join(known)}."
    return InputError(f"Unknown {kind} {name!r}. {hint}")
