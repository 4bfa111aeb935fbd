"""The `subjects` dataset: sentences of two nouns, to be labelled with the subject of the verb.

    The cat sat on the mat.                         cat
    Later the mat slowly slid under the cat.        mat

Sentences come in pairs with exchanged nouns, so that only the order of the words determines the label. Every two nouns
belong to one split, for every seed: the cat and the mat, in either order, are only in the test split.
"""

import functools
import itertools
import random

from training.data.dataset import Labelled, LabelledData, check_split
from training.data.registry import register_data

SIZES = {"train": 12_000, "val": 1_000, "test": 2_000}
"""Sentences in each split."""

NOUNS = tuple(
    "cat mat dog table king hat box bird horse chair bear wall ball child wolf bed queen tree door ship".split()
)
"""The labels."""

_ADJECTIVES = "old young black white small big red grey tired strange quiet dusty famous other".split()
_VERBS = """sat on, sat near, lay under, lay beside, stood behind, stood in front of, fell on, leaned on, rested on,
slept under, slid under, rolled to, moved past, landed on, hid behind, stayed with, waited for, appeared behind,
disappeared behind, jumped over, turned to, ran into, looked at, belonged to, came from, went to, broke, touched, saw,
followed, passed, liked, needed, found, carried, pushed, hit"""
_OPENINGS = "Yesterday, Later, In the morning, At night, Suddenly, After lunch, Once, For an hour, Last week"
_ADVERBS = "slowly, often, never, always, quietly, soon, almost, finally, just, really"
_ENDINGS = "again, for an hour, in the rain, at last, without a sound, all day, in the dark, this morning, twice"
_TESTED = ("cat", "mat")


@functools.cache
def nouns(split: str) -> tuple[tuple[str, str], ...]:
    """Returns the pairs of nouns of a split, the same for every seed."""
    check_split(split)
    both = [pair for pair in itertools.combinations(NOUNS, 2) if pair != _TESTED]
    random.Random("the nouns of each split").shuffle(both)
    test, val = 30, 15
    splits = {"test": [_TESTED, *both[:test]], "val": both[test : test + val], "train": both[test + val :]}
    return tuple(splits[split])


def examples(split: str, seed: int = 0) -> list[tuple[str, str]]:
    """Generates a split: distinct sentences and the label of each; examples 2n and 2n + 1 have the same words."""
    chance, sentences = random.Random(f"subjects {split} {seed}"), dict[str, str]()
    pairs = nouns(split)
    while len(sentences) < SIZES[split]:
        first, second = pairs[len(sentences) // 2 % len(pairs)]
        frame = _frame(chance)
        sentences |= {frame.format(first, second): first, frame.format(second, first): second}
    return list(sentences.items())


def _frame(chance: random.Random) -> str:
    """Returns a sentence without its two nouns."""

    def some(words: str, share: float) -> str:
        return f"{chance.choice(words.split(', '))} " if chance.random() < share else ""

    adjectives = [f"{chance.choice(_ADJECTIVES)} " if chance.random() < 0.3 else "" for _ in range(2)]
    verb = chance.choice(" ".join(_VERBS.split()).split(", "))
    opening, adverb, ending = some(_OPENINGS, 0.3), some(_ADVERBS, 0.2), some(_ENDINGS, 0.3).rstrip()
    clause = f"{opening}the {adjectives[0]}{{}} {adverb}{verb} the {adjectives[1]}{{}} {ending}".rstrip()
    return f"{clause[0].upper()}{clause[1:]}{chance.choice(('.', ''))}"


@register_data("subjects", "subjects")
def load_subjects(spec: str, seed: int = 0) -> LabelledData:
    """Opens the generated dataset; the default tokenizer is words."""

    def load_split(name: str) -> Labelled:
        pairs = examples(name, seed)
        return Labelled([text for text, _ in pairs], [label for _, label in pairs])

    return LabelledData(spec=spec, tokenizer="words", load_split=load_split)
