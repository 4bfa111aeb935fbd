"""Base64 as TensorFlow Serving reads it in JSON: with white space anywhere, and with or without padding."""

import base64
import re

_SPACE = " \t\n\v\f\r"
_SYMBOLS = re.compile(rf"([A-Za-z0-9+/{_SPACE}]*)([=.{_SPACE}]*)")
_PADDING = {0: 0, 2: 2, 3: 1}  # characters, by how many symbols the last group has


def decode(text: str) -> bytes:
    """Returns the bytes of a text in base64, as `absl::Base64Unescape` does.

    White space is skipped; padding, of `=` or `.`, is whole or missing.

    Raises:
        ValueError: If it is not base64.
    """
    found = _SYMBOLS.fullmatch(text)
    if found is None:
        raise ValueError(f"It is not base64. Received: {text[:40]!r}")
    symbols, padding = (re.sub(f"[{_SPACE}]", "", part) for part in found.groups())
    expected = _PADDING.get(len(symbols) % 4)
    if expected is None or len(padding) not in (0, expected):
        raise ValueError(f"The last group of base64 is not whole. Received: {text[-40:]!r}")
    return base64.b64decode(symbols + "=" * expected)
