"""The `sums` dataset: sums and differences of numbers below a hundred, one a line.

    17+25=42
    42-25=17

Every two numbers belong to one split, for every seed: if 17+25 is in the test split, then neither it nor 25+17 nor
25-17 is in the training split. No difference is negative.
"""

import functools
import random

from training.data.dataset import TextData, Texts, check_split
from training.data.registry import register_data

LARGEST = 99
"""The largest number to be added or subtracted."""

SIZES = {"train": 11_900, "val": 1_000, "test": 2_000}
"""Lines in each split; nearly all that its numbers allow."""


@functools.cache
def operands(split: str) -> tuple[tuple[int, int], ...]:
    """Returns the numbers (larger, smaller) of a split, the same for every seed."""
    check_split(split)
    both = [(larger, smaller) for larger in range(LARGEST + 1) for smaller in range(larger + 1)]
    random.Random("the operands of each split").shuffle(both)
    test, val = round(len(both) * 0.135), round(len(both) * 0.07)
    splits = {"test": both[:test], "val": both[test : test + val], "train": both[test + val :]}
    return tuple(splits[split])


def lines(split: str, seed: int = 0) -> list[str]:
    """Generates a split: distinct lines, drawn and ordered by the seed."""
    possible = [line for larger, smaller in operands(split) for line in _lines_of(larger, smaller)]
    return random.Random(f"sums {split} {seed}").sample(possible, SIZES[split])


@register_data("sums", "sums")
def load_sums(spec: str, seed: int = 0) -> TextData:
    """Opens the generated dataset of separate lines; the default tokenizer is characters."""

    def load_split(name: str) -> Texts:
        return Texts(lines(name, seed))

    return TextData(spec=spec, tokenizer="chars", load_split=load_split, joined=False, prompt_end="=")


def _lines_of(larger: int, smaller: int) -> list[str]:
    """Returns the lines of two numbers, without repeating the sum of a number with itself."""
    sums = {f"{larger}+{smaller}={larger + smaller}": None, f"{smaller}+{larger}={larger + smaller}": None}
    return [*sums, f"{larger}-{smaller}={larger - smaller}"]
