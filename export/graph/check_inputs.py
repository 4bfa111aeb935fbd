"""What a check asks every signature, and how the answers of a run become outputs of one."""

from collections.abc import Iterable
from typing import Any

import numpy as np

TEXTS = ["A man rides a horse.", "", "14 July 1789", "17+25=", "naïve café ß Ω 漢字 😀", "x" * 300, "the old man"]
# Attention has a number for each pair of symbols.
SHORT_TEXTS = [text for text in TEXTS if len(text) < 100]


def stacked(arrays: Iterable[Any], fill: Any) -> list[Any]:
    """Returns arrays of one rank as one, each padded at the end, as nested lists.

    Args:
        arrays: The arrays.
        fill: What pads them.
    """
    arrays = [np.asarray(array, object if fill == "" else None) for array in arrays]
    whole = np.full((len(arrays), *np.max([array.shape for array in arrays], axis=0)), fill, arrays[0].dtype)
    for place, array in zip(whole, arrays, strict=True):
        place[tuple(map(slice, array.shape))] = array
    rows: list[Any] = whole.tolist()
    return rows
