"""Forms of English verbs and nouns in the generated sentences of `senses`."""

import re
from typing import NamedTuple

_VOWELS = "aeiou"
_ENDS_IN_CVC = re.compile(rf"(?:un|re)?[^{_VOWELS}]*(?:[{_VOWELS}]|qu[{_VOWELS}])[^{_VOWELS}wxyh]")
# Verbs of several syllables whose last consonant is doubled.
_DOUBLING = {"begin", "forget", "program", "prefer", "commit", "equip", "reset", "transfer", "outrun", "regret"}
_THIRD_PERSON = {"be": "is", "have": "has", "go": "goes", "do": "does"}
_PLURALS = {"mouse": "mice"}


class Verb(NamedTuple):
    """The forms of a verb, which may have further words, such as "bite into"."""

    base: str
    past: str
    participle: str

    @classmethod
    def read(cls, text: str) -> "Verb":
        """Parses `BASE/PAST/PARTICIPLE`, or the base of a regular verb, of which the first word is inflected."""
        if "/" in text:
            return cls(*text.split("/"))
        word, rest = _split(text)
        past = f"{_with_ending(word, 'ed')}{rest}"
        return cls(text, past, past)

    @property
    def gerund(self) -> str:
        """The form in -ing."""
        word, rest = _split(self.base)
        stem = f"{word[:-2]}y" if word.endswith("ie") else word
        return f"{_with_ending(stem, 'ing')}{rest}"

    @property
    def third(self) -> str:
        """The present tense after he, she or it."""
        word, rest = _split(self.base)
        return f"{_THIRD_PERSON.get(word) or _with_s(word)}{rest}"


def plural(noun: str) -> str:
    """Returns the plural of a noun, of which the last word is inflected."""
    first, last = noun[: noun.rfind(" ") + 1], noun[noun.rfind(" ") + 1 :]
    return first + (_PLURALS.get(last) or _with_s(last))


def with_article(noun: str) -> str:
    """Returns a noun after "a" or "an"."""
    return f"{'an' if noun[:1].lower() in _VOWELS else 'a'} {noun}"


def _split(text: str) -> tuple[str, str]:
    """Returns the first word of a text, and the rest with the space before it."""
    word, space, rest = text.partition(" ")
    return word, space + rest


def _with_ending(word: str, ending: str) -> str:
    if word.endswith("e") and not (ending == "ing" and word.endswith(("ee", "oe", "ye")) or word == "be"):
        return word[:-1] + ending
    if ending == "ed" and re.search(rf"[^{_VOWELS}]y$", word):
        return f"{word[:-1]}ied"
    if _ENDS_IN_CVC.fullmatch(word) or word in _DOUBLING:
        return word + word[-1] + ending
    return word + ending


def _with_s(word: str) -> str:
    if re.search(rf"[^{_VOWELS}]y$", word):
        return f"{word[:-1]}ies"
    return word + ("es" if word.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")
