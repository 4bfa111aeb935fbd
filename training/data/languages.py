"""Detects the language of texts: from their data SPEC, or else by their script."""

import re
from collections import Counter
from collections.abc import Iterable

_PAIR = re.compile(r"[:/]([A-Za-z]{2,3}(?:[_-][A-Za-z]{4})?)-([A-Za-z]{2,3}(?:[_-](?:[A-Za-z]{2,4}))?)$")


def target_language(spec: str) -> str:
    """Returns the code of the target language in a data SPEC, in lower case; empty if it has none.

    It is the end of `text:DIR:SRC-TGT` and of `tfds:NAME/SRC-TGT`.
    """
    match = _PAIR.search(spec)
    return re.split("[_-]", match[2])[0].lower() if match else ""


# Scripts of languages without spaces between words, or with a tokenizer of their own in sacreBLEU.
_SCRIPTS = {
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "zh": re.compile(r"[\u3400-\u9fff\U00020000-\U0003ffff]"),
    "ko": re.compile(r"[\u1100-\u11ff\uac00-\ud7af]"),
    "th": re.compile(r"[\u0e00-\u0e7f]"),
    "lo": re.compile(r"[\u0e80-\u0eff]"),
    "bo": re.compile(r"[\u0f00-\u0fff]"),
    "my": re.compile(r"[\u1000-\u109f]"),
    "km": re.compile(r"[\u1780-\u17ff]"),
}
_MANY = 1000  # texts that are examined


def language_of(texts: Iterable[str]) -> str:
    """Returns the code of the language whose script most letters of the texts have; `""` for all other languages.

    Texts with kana are Japanese, whose other letters are Chinese.
    """
    counts, letters = Counter[str](), 0
    for text, _ in zip(texts, range(_MANY), strict=False):
        letters += sum(character.isalpha() for character in text)
        counts.update({code: len(script.findall(text)) for code, script in _SCRIPTS.items()})
    if counts["ja"]:
        counts["ja"] += counts.pop("zh")
    code, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    return code if 2 * count > letters else ""
