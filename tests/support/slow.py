"""Which of many tests that are alike are fast."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def slow_unless(fast: Callable[[Any], bool], values: Iterable[Any]) -> list[Any]:
    """Returns the values of a test's parameter, those that are not fast marked as slow."""
    return [value if fast(value) else pytest.param(value, marks=pytest.mark.slow) for value in values]
