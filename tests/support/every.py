"""Checks of many items in one test, which tells every item that fails."""

import contextlib
from collections.abc import Callable, Iterator

import pytest


class Failures:
    """What went wrong, by item."""

    def __init__(self):
        self.found: dict[str, BaseException] = {}

    @contextlib.contextmanager
    def of(self, item: object) -> Iterator[None]:
        """Keeps what goes wrong within, so that other items are checked as well."""
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            self.found[str(item)] = error


@contextlib.contextmanager
def every() -> Iterator[Failures]:
    """Yields `Failures`, and raises all that were found."""
    failures = Failures()
    yield failures
    if failures.found:
        raise BaseExceptionGroup(f"failed: {', '.join(failures.found)}", list(failures.found.values()))


def assert_refused(cases: list[tuple[Callable[[], object], str]], error: type[Exception] = ValueError) -> None:
    """Checks that each call raises an error whose text names what was wrong: a pattern for each."""
    with every() as failures:
        for number, (call, pattern) in enumerate(cases):
            with failures.of(f"{number}: {pattern}"), pytest.raises(error, match=f"(?s){pattern}"):
                call()
