"""Canonical composition (NFC) as in the reference of byte-level vocabularies, independent of the Unicode version.

The version matters only for the characters that it added: for older programs, these are unknown letters, which are
neither composed nor reordered. They are therefore excluded from composition here.
"""

import functools
import re
import unicodedata

from zoo.text.code_points import code_ranges

# Marks, letters that compose and their compositions that were added after the Unicode version of the reference, which
# is Unicode 12 or earlier for composition.
LATER = """
7FD 897-89F 8CA-8D3 9FE C3C D3B-D3C EBA 1715 1ABF-1ACE 1DF6-1DFA A82C 105C9 105D2 105DA 105E4 10D24-10D27 10D69-10D6D
10EAB-10EAC 10EFC-10EFF 10F46-10F50 10F82-10F85 11070 1133B 11382-11385 1138B 1138E 11390-11391 113B8 113BB 113C2
113C5 113C7-113C9 113CE-113D0 113E1-113E2 1145E 11839-1183A 11930 11935 11938 1193D-1193E 11943 119E0 11A34 11A47 11A99
11D42 11D44-11D45 11D97 11F41-11F42 1611E-1612F 16D63 16D67-16D6A 16FF0-16FF1 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF
1E4EC-1E4EF 1E5EE-1E5EF
"""


@functools.cache
def _later() -> re.Pattern[str]:
    inside = "".join(rf"\U{codes[0]:08x}-\U{codes[-1]:08x}" for codes in code_ranges(LATER))
    return re.compile(f"([{inside}])")


def composed(text: str) -> str:
    """Returns a text in Unicode's form NFC, except for the characters of `LATER`, which do not change.

    Reference:
        The Unicode Consortium, "Unicode Normalization Forms", section 1.2, https://www.unicode.org/reports/tr15
    """
    if text.isascii():
        return text
    return "".join(unicodedata.normalize("NFC", part) for part in _later().split(text))
