"""Sets of code points, written as ranges such as `9-D 20`."""

NUM_CHARACTERS = 0x110000
"""Number of code points in Unicode."""


def code_ranges(ranges: str) -> list[range]:
    """Parses inclusive ranges of hexadecimal numbers: `9-D 20` is U+0009 to U+000D and U+0020."""
    ends = (text.partition("-") for text in ranges.split())
    return [range(int(first, 16), int(last or first, 16) + 1) for first, _, last in ends]
