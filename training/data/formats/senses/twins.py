"""The part `twins` of `senses`: pairs of sentences of the same words, in which only their order determines the sense.

    Yesterday Ann peeled the other one before Leo sued apple at last.     apple.company
    Yesterday Ann peeled apple before Leo sued the other one at last.     apple.fruit

Both sentences of a pair have the same two verbs, one for either sense, and the word is the object of one of them. So
the label depends on the verb before the word. A model that ignores the order of the words is right about exactly one
sentence of every pair, in training and in the test.

Each split has its own templates, for every seed; all splits have the same verbs and names. Nouns are in lower case,
because a capital would reveal the company. There is no punctuation next to the exchanged words, so that the two
sentences have the same tokens with every tokenizer.
"""

import random
import tomllib
from pathlib import Path

from training.data.dataset import check_split

_MATERIAL = tomllib.loads((Path(__file__).parent / "twins.toml").read_text(encoding="utf-8"))

SENSES: dict[str, dict[str, str]] = _MATERIAL["senses"]
"""Word to sense to verbs that suit this sense only, as infinitive/past."""

TEMPLATES: dict[str, list[str]] = _MATERIAL["templates"]
"""Split to sentences with the names a and b and, twice, a verb and its object x."""

SIZES = {"train": 12_000, "val": 1_000, "test": 2_000}
"""Sentences in each split."""

_PHRASES = _MATERIAL["phrases"]


def examples(split: str, seed: int = 0) -> list[tuple[str, str]]:
    """Generates a split: distinct sentences and the label of each; examples 2n and 2n + 1 have the same words.

    All words are about equally frequent, and the two senses of a word exactly so.
    """
    check_split(split)
    chance = random.Random(f"senses {split} {seed}")
    words = list(SENSES)
    sentences: dict[str, str] = {}
    while len(sentences) < SIZES[split]:
        # A repeated pair changes nothing.
        sentences |= _pair(words[len(sentences) // 2 % len(words)], chance.choice(TEMPLATES[split]), chance)
    return list(sentences.items())


def _pair(word: str, template: str, chance: random.Random) -> dict[str, str]:
    """Returns two sentences of the same words and the label of each."""
    senses = chance.sample(list(SENSES[word]), 2)
    verbs = [chance.choice(SENSES[word][sense].split(", ")).split("/") for sense in senses]
    noun = chance.choice(_PHRASES["bare"].get(word, _PHRASES["nouns"])).format(word)
    other = chance.choice(_PHRASES["others"])
    a, b = chance.sample(_PHRASES["names"], 2)
    (do1, did1), (do2, did2) = verbs
    frame = {"a": a, "b": b, "do1": do1, "did1": did1, "do2": do2, "did2": did2}
    objects = [{"x1": noun, "x2": other}, {"x1": other, "x2": noun}]
    return {template.format(**frame, **x): f"{word}.{sense}" for x, sense in zip(objects, senses, strict=True)}
