"""The one error that means: the input is wrong, and the user can fix it."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input or bad usage; the message names what was received and the fix.

    Commands print it as one line and exit with status 2.
    """


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Returns the error for a name that is not among `known`, naming the close ones.

    Args:
        kind: What the name was meant to be, such as `"model"`.
        name: The name received.
        known: The names there are.
    """
    known = sorted(known)
    close = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(close)}?" if close else f"Known: {', '.join(known)}."
    return InputError(f"Unknown {kind} {name!r}. {hint}")
