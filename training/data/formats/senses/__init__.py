"""The `senses` dataset: sentences with a word of two senses, to be labelled with the intended sense.

It has two parts, which can also be opened separately: `senses:twins`, pairs of sentences of the same words, in which
only their order determines the sense, and `senses:natural`, sentences as people write them.
"""

import functools
from collections.abc import Callable

from training.data.dataset import Labelled, LabelledData
from training.data.formats.senses import natural, twins
from training.data.registry import register_data
from zoo.errors import InputError, unknown_name

PARTS: dict[str, Callable[[str, int], list[tuple[str, str]]]] = {"twins": twins.examples, "natural": natural.examples}
"""The parts by name; each returns sentences and labels of a split, drawn with a seed."""


@register_data("senses", "senses[:natural|:twins]")
def load_senses(spec: str, seed: int = 0) -> LabelledData:
    """Opens both parts of the dataset, or one; the default tokenizer is words for the twins, else subwords."""
    _, colon, part = spec.partition(":")
    if colon and part not in PARTS:
        raise InputError(f"{unknown_name('part of senses', part, PARTS)} Received: {spec!r}.")
    names = (part,) if colon else tuple(PARTS)
    made = functools.cache(lambda name, split: PARTS[name](split, seed))

    def load_split(split: str) -> Labelled:
        texts, labels = zip(*(example for name in names for example in made(name, split)), strict=True)
        return Labelled(list(texts), list(labels))

    return LabelledData(
        spec=spec,
        tokenizer="words" if part == "twins" else "subword",
        load_split=load_split,
        parts=() if colon else names,
        part_sizes=lambda split: [] if colon else [len(made(name, split)) for name in names],
    )
