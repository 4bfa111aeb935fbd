"""Which of many cases that are alike run in the fast tier."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def nightly_unless(fast: Callable[[Any], bool], values: Iterable[Any]) -> list[Any]:
    """Returns the values of a test's parameter, those that are not fast marked as nightly."""
    return [value if fast(value) else pytest.param(value, marks=pytest.mark.nightly) for value in values]
