"""What is refused, and that the error names the argument and what was received."""

from collections.abc import Callable, Iterable


def check_refusals(rows: Iterable[tuple]) -> None:
    """Checks that each call raises a ValueError whose message has all of its words, and lists all that do not.

    Args:
        rows: A function without arguments each, and words: names of arguments, what was received, what helps.
    """
    found = [_what_is_wrong(number, *row) for number, row in enumerate(rows)]
    assert not any(found), "\n".join(filter(None, found))


def _what_is_wrong(number: int, call: Callable[[], object], *words: str) -> str:
    assert words, f"row {number} has no words"
    try:
        call()
    except ValueError as error:
        missing = [word for word in words if word not in str(error)]
        return f"row {number}: {missing} not in {str(error)!r}" if missing else ""
    return f"row {number}, {words}: nothing is refused"
