"""The rules by which byte-level tokenizers split text into words before merging, and their classes of characters.

The classes are those of Unicode 16, independent of Python's Unicode version, as in the graph and in the reference.
"""

import functools
import re
import unicodedata

import numpy as np

from zoo.text.code_points import NUM_CHARACTERS, code_ranges

LETTER, NUMBER, OTHER, SPACE = range(4)
"""Classes of characters."""

CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
"""The contractions that are separate words at the beginning of a word."""

# Unicode's White_Space; Python's `str.isspace` has U+001C to U+001F as well.
_SPACES = "9-D 20 85 A0 1680 2000-200A 2028-2029 202F 205F 3000"
# The characters that Unicode 15.0, 15.1 and 16.0 added to the version of Python 3.11.
_NEW_LETTERS = """
1C89-1C8A A7CB-A7CD A7DA-A7DC 105C0-105F3 10D4A-10D65 10D6F-10D85 10EC2-10EC4 1123F-11240 11380-11389 1138B 1138E
11390-113B5 113B7 113D1 113D3 11BC0-11BE0 11F02 11F04-11F10 11F12-11F33 1342F 13441-13446 13460-143FA 16100-1611D
16D40-16D6C 18CFF 1B132 1B155 1DF25-1DF2A 1E030-1E06D 1E4D0-1E4EB 1E5D0-1E5ED 1E5F0 2B739 2EBF0-2EE5D 31350-323AF
"""
_NEW_NUMBERS = """
10D40-10D49 116D0-116E3 11BF0-11BF9 11F50-11F59 16130-16139 16D70-16D79 1CCF0-1CCF9 1D2C0-1D2D3 1E4F0-1E4F9 1E5F1-1E5FA
"""


@functools.cache
def character_classes() -> np.ndarray:
    """Returns the class of each code point, uint8 [0x110000]."""
    by_category = {"L": LETTER, "N": NUMBER}
    first_letters = (unicodedata.category(chr(code))[0] for code in range(NUM_CHARACTERS))
    classes = np.fromiter((by_category.get(letter, OTHER) for letter in first_letters), np.uint8, NUM_CHARACTERS)
    for ranges, value in ((_NEW_LETTERS, LETTER), (_NEW_NUMBERS, NUMBER), (_SPACES, SPACE)):
        for codes in code_ranges(ranges):
            classes[codes] = value
    classes.setflags(write=False)
    return classes


GPT2, GPT4 = "gpt2", "gpt4"
SINGLE_DIGITS = "_single_digits"
WORD_RULES = (GPT2, GPT2 + SINGLE_DIGITS, GPT4, GPT4 + SINGLE_DIGITS)
"""The rules by which texts are split into words: those of GPT-2, SmolLM2, GPT-4 (also Llama 3, OLMo 2) and Qwen."""


@functools.cache
def word_pattern(rule: str = GPT2) -> re.Pattern[str]:
    """Returns the regular expression of a rule, whose consecutive matches are the words of a text, without gaps.

    GPT-2: a word is one of the `CONTRACTIONS`; or letters, numbers or other characters, with at most one space before
    them; or white space, without the last character if a word follows.

    GPT-4: contractions of any case; letters, with at most one character before them that is neither a letter, a number
    nor a line break; up to three numbers; other characters, with at most one space before and any line breaks behind
    them; white space up to its last line break; or other white space, without the last character if a word follows.

    With `SINGLE_DIGITS`, each number is a word.

    Reference:
        Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2 (no merges across
        classes of characters, with an exception for spaces); OpenAI, "tiktoken", encodings `gpt2` and `cl100k_base`,
        https://github.com/openai/tiktoken; Qwen Team 2023, "Qwen Technical Report", section 2.2 (single digits)
    """
    letters, numbers, spaces = (_character_set(value) for value in (LETTER, NUMBER, SPACE))
    others, contractions = f"[^{spaces}{letters}{numbers}]+", "|".join(CONTRACTIONS)
    has_single_digits = rule.endswith(SINGLE_DIGITS)
    if rule.startswith(GPT4):
        number = f"[{numbers}]" if has_single_digits else f"[{numbers}]{{1,3}}"
        return re.compile(
            rf"(?i:{contractions})|[^\r\n{letters}{numbers}]?[{letters}]+|{number}| ?{others}[\r\n]*"
            rf"|[{spaces}]*[\r\n]+|[{spaces}]+(?![^{spaces}])|[{spaces}]+"
        )
    number, no_word = (f"[{numbers}]", spaces + numbers) if has_single_digits else (f" ?[{numbers}]+", spaces)
    return re.compile(f"{contractions}| ?[{letters}]+|{number}| ?{others}|[{spaces}]+(?![^{no_word}])|[{spaces}]+")


def _character_set(value: int) -> str:
    """Returns the ranges of a class for a character set of a regular expression."""
    inside = np.concatenate([[False], character_classes() == value, [False]])
    starts, ends = np.flatnonzero(inside[1:] & ~inside[:-1]), np.flatnonzero(~inside[1:] & inside[:-1]) - 1
    return "".join(rf"\U{start:08x}-\U{end:08x}" for start, end in zip(starts.tolist(), ends.tolist(), strict=True))
