"""Bytes as text: base64 as TensorFlow Serving accepts it in JSON, and answers as lines."""

import base64
import re

_SPACE = " \t\n\v\f\r"
_PATTERN = re.compile(rf"([A-Za-z0-9+/{_SPACE}]*)([=.{_SPACE}]*)")
_PADDING = {0: 0, 2: 2, 3: 1}  # padding characters by the number of digits in the last group


def decode_base64(text: str) -> bytes:
    """Returns the bytes of a text in base64, as `absl::Base64Unescape` does.

    White space is skipped; padding, of `=` or `.`, must be complete or absent.

    Raises:
        ValueError: If it is not base64.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"The text is not base64. Received: {text[:40]!r}")
    digits, padding = (re.sub(f"[{_SPACE}]", "", part) for part in match.groups())
    expected = _PADDING.get(len(digits) % 4)
    if expected is None or len(padding) not in (0, expected):
        raise ValueError(f"The last group of base64 is incomplete. Received: {text[-40:]!r}")
    return base64.b64decode(digits + "=" * expected)


def one_line(answer: bytes) -> bytes:
    """Returns an answer as one line: its line breaks are replaced by spaces."""
    return b" ".join(answer.splitlines())
