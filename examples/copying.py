"""Notes about people whose names are made up: what is to be written has to be copied.

    python -m training.train --import examples.copying --model pointer_generator --data copying --workdir runs/copying

Every name is a new one, so that a model cannot write it from memory and must copy it.
"""

import random

from training.data import Pairs, ParallelData, register_data

SIZES = {"train": 600, "val": 200, "test": 500}
TEMPLATES = (
    ("please tell {a} to meet {b} at {n}", "{a} + {b} @ {n}"),
    ("at {n} there is a talk by {a}, and {b} will listen", "{b} < {a} @ {n}"),
    ("{b} has lost the key of room {n}, says {a}", "{a}: {b} # {n}"),
    ("room {n} belongs to {a} and not to {b}", "{a} - {b} # {n}"),
)


def pair(chance: random.Random) -> tuple[str, str]:
    """Returns a note and its short form."""
    names = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 8))) for _ in range(2)]
    values = {"a": names[0], "b": names[1], "n": chance.randint(100, 9999)}
    source, target = chance.choice(TEMPLATES)
    return source.format(**values), target.format(**values)


@register_data("copying", "copying")
def load_copying(spec: str, seed: int) -> ParallelData:
    """Opens the data; the same seed gives the same."""

    def load_split(name: str) -> Pairs:
        chance = random.Random(f"{seed} {name}")
        source, target = zip(*(pair(chance) for _ in range(SIZES[name])), strict=True)
        return Pairs(list(source), list(target))

    return ParallelData(spec=spec, tokenizer="chars", shared_vocabulary=True, load_split=load_split)
