"""The one error that means: the input is wrong, and the user can fix it."""

import difflib
from collections.abc import Iterable, Sequence


class InputError(ValueError):
    """Bad input or bad usage; the message names what was received and the fix.

    Commands print it as one line and exit with status 2.
    """


def unknown_name(kind: str, name: str, known: Iterable[str], meant: Sequence[str] = ()) -> InputError:
    """Returns the error for a name that is no known one of a kind, such as `"model"`; it names the close ones.

    Args:
        kind: What the name should be.
        name: The name.
        known: All names there are.
        meant: Names that it may mean, if it is a synonym.
    """
    known = sorted(known)
    close = list(meant) or difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(close)}?" if close else f"Known: {', '.join(known)}."
    return InputError(f"Unknown {kind} {name!r}. {hint}")
