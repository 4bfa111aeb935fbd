"""Sections of our docstrings under the names that mkdocstrings defines."""

import re
from typing import Any

import griffe

_NAMES = {r"^Example:$": "Examples:", r"^Call arguments:$": "Args: Call arguments"}


class Sections(griffe.Extension):
    """Renames `Example:` and `Call arguments:`."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Renames the sections of an object's docstring.

        Args:
            obj: The object.
        """
        if obj.docstring:
            for name, known in _NAMES.items():
                obj.docstring.value = re.sub(name, known, obj.docstring.value, flags=re.MULTILINE)
