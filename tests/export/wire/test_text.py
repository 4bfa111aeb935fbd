"""Base64 as TensorFlow Serving reads it."""

import base64
import random

import pytest

from export.wire.text import decode_base64

BAD = ("#", "a", "aGk==", "aGk=a", "aaaaa", "aGVq=", "aGVqPg=", "a-_b", "aGk\x00", "aGkü", "=", "a===", "aGk=  =")


def test_what_is_taken_and_what_is_refused():
    for size in range(70):
        data = random.Random(size).randbytes(size)
        text = base64.b64encode(data).decode()
        wrapped = base64.encodebytes(data).decode().replace("\n", "\r\n\t ")
        for form in (text, text.rstrip("="), text.replace("=", "."), wrapped, f"\v\f{text} \n", " ".join(text)):
            assert decode_base64(form) == data, form
    for text in BAD:
        with pytest.raises(ValueError, match="Received"):
            decode_base64(text)
