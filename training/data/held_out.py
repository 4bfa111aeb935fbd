"""A validation split for data that come without one: a tenth of the training examples."""

import functools
import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable

from training.data.dataset import Labelled, Pairs, SplitType, Texts
from zoo.errors import InputError

SHARE = 10
"""One in `SHARE` training examples is held out."""


def hold_out(examples: Pairs | Labelled | Texts, seed: int, where: str) -> tuple[list[int], list[int]]:
    """Draws a tenth of the examples, the same on every machine and for every order of the examples.

    All copies of a text are on one side, and at least one text of every label stays in training. Of few examples a
    little less than a tenth is held out, but at least one.

    Returns:
        The indices of the examples to train on and of those held out, both in order.

    Raises:
        InputError: There are too few different examples; the message contains `where`.
    """
    texts = examples.source if isinstance(examples, Pairs) else examples.texts
    labels = examples.labels if isinstance(examples, Labelled) else [""] * len(texts)
    groups = defaultdict(list)
    for number, text in enumerate(texts):
        groups[text].append(number)
    limit, left = max(len(texts) // SHARE, 1), Counter(labels)
    held_out: set[int] = set()
    for text in sorted(groups, key=functools.partial(_rank, seed=seed)):
        lost = Counter(labels[number] for number in groups[text])
        if len(held_out) + len(groups[text]) <= limit and all(left[label] > count for label, count in lost.items()):
            held_out.update(groups[text])
            left -= lost
    if not held_out:
        raise InputError(f"{where}: {_reason_against(texts, labels)}; provide a val split.")
    return [number for number in range(len(texts)) if number not in held_out], sorted(held_out)


def _reason_against(texts: list[str], labels: list[str]) -> str:
    """Returns the reason why none of these examples can be held out."""
    if len(set(texts)) == 1 < len(texts):
        return f"all {len(texts)} examples have the same text, so that none is left for validation"
    if len(texts) >= SHARE and len(set(labels)) == len(labels):
        return (
            f"each of its {len(labels)} labels occurs once (are text and label swapped?), so that none can be held out"
        )
    return f"{len(texts)} examples are too few to hold out a tenth"


def with_held_out(read: Callable[[str], SplitType], seed: int, where: str) -> Callable[[str], SplitType]:
    """Returns `Dataset.load_split` for data without a validation split.

    `read("train")` returns all examples that train and val are taken from; for the other arguments see `hold_out`.
    """

    @functools.cache
    def divided() -> dict[str, SplitType]:
        whole = read("train")
        rest, held_out = hold_out(whole, seed, where)  # type: ignore[arg-type]
        return {"train": whole.take(rest), "val": whole.take(held_out)}

    return lambda name: read(name) if name == "test" else divided()[name]


def _rank(text: str, seed: int) -> bytes:
    """Returns a sort key that puts texts in a random order, by their content alone."""
    return hashlib.blake2b(text.encode(), key=str(seed).encode(), digest_size=16).digest()
