"""Inputs of models and tokenizers: sentences, Arabic words, and difficult lines."""

import random
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from babel import Locale

from training.data import load_data

# Kinds of characters that a made-up line is drawn from, by first and last code point.
_RANGES = (
    (0x00, 0x1F),
    (0x20, 0x7E),
    (0xA0, 0x24F),
    (0x300, 0x36F),
    (0x370, 0x52F),
    (0x590, 0x6FF),
    (0x900, 0x97F),
    (0x2000, 0x206F),
    (0x2150, 0x218F),
    (0x3000, 0x30FF),
    (0x4E00, 0x4FFF),
    (0xAC00, 0xACFF),
    (0xFE00, 0xFE0F),
    (0x1D7D8, 0x1D7FF),
    (0x1F1E6, 0x1F1FF),
    (0x1F600, 0x1F64F),
)
_WHOLE = ("\u200d", "👩\u200d👩\u200d👧", "\r\n", "\n\n", "½", "Ⅷ", "'ll", "n't", "  ", "\ufeff", "שלום", "e\u0301")


def sentences(count: int) -> list[str]:
    """Returns different English sentences, evenly spread over the test split of `senses`."""
    texts = list(dict.fromkeys(load_data("senses").load_split("test").texts))
    return texts[:: max(1, len(texts) // count)][:count]


def beginnings(texts: Iterable[str]) -> list[str]:
    """Returns the first words of each text, from one to six of them."""
    return [" ".join(text.split()[: 1 + number % 6]) for number, text in enumerate(texts)]


def arabic_words(count: int, letters: Container[str], seed: int = 0) -> list[str]:
    """Returns different words: those of Babel's Arabic names that consist of `letters`, and then random ones."""
    locale, chance = Locale("ar"), random.Random(seed)
    names = [*locale.territories.values(), *locale.languages.values(), *locale.currencies.values()]
    known = [word for name in names for word in name.split() if all(letter in letters for letter in word)]
    words = dict.fromkeys(known)
    alphabet = sorted({letter for word in known for letter in word})
    while len(words) < count:
        words["".join(chance.choices(alphabet, k=chance.randint(1, 12)))] = None
    return list(words)[:count]


def hostile_lines(count: int, seed: int = 0) -> Iterator[str]:
    """Yields lines of control, combining, joining, right-to-left and other characters, and very long words."""
    chance = random.Random(seed)
    yield from ("", " ", "\n", "\x00", "a" * 10_000, "é" * 10_000, "漢" * 1_000)
    for _ in range(count - 7):
        kinds = chance.choices(_RANGES, k=chance.randint(1, 4))
        length = chance.randint(1, 40)
        yield "".join(
            chance.choice(_WHOLE) if chance.random() < 0.1 else chr(chance.randint(*chance.choice(kinds)))
            for _ in range(length)
        )


def read_lines(paths: Iterable[Path]) -> list[str]:
    """Returns the different lines of files, and of the Python sources in folders."""
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    texts = (path.read_bytes().decode("utf-8", "replace") for path in files)
    return list(dict.fromkeys(line for text in texts for line in text.split("\n")))
