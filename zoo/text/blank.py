"""Detects blank texts."""

import re

# Control and format characters, separators, and fillers and selectors that are invisible.
_INVISIBLE = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]*"
)


def is_blank(text: str) -> bool:
    """Returns whether a text has no visible characters, only white space or invisible ones, such as U+200B."""
    return _INVISIBLE.fullmatch(text) is not None
