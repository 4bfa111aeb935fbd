"""The part `natural` of `senses`: sentences as people write them, with a word of two senses.

    The pony ate the juicy apples in the orchard.                  apple.fruit
    Have you ever worked for Apple?                                apple.company

Training sentences come from a grammar: frames (`frames.toml`) whose slots are filled with clues of the sense
(`clues_1.toml`, `clues_2.toml` and, where several senses share them, `topics.toml`) and with neutral words
(`everyday.toml`). Some of these are invented, since real texts contain words that are not in the training data. Some
sentences also have clues of the other sense, but in a clause of their own, farther from the word.

Validation and test sentences are not generated: `natural_val.tsv` and `natural_test.tsv` were written by hand, by
other authors than the frames and the clues.

Keys of clues: `do` are verbs with the word as object, `does` those with it as subject, `is` adjectives of it, `before`
and `after` words next to it. Around it are `agents`, `things` (nouns with an article), `stuff` (nouns without one),
`places` (adverbials) and `acts` (verbs of other subjects).
"""

import functools
import random
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from training.data.dataset import check_split
from training.data.files import read_lines
from training.data.formats.senses.english import Verb, plural, with_article

SIZE = 54_000
"""Number of training sentences, equally many for each sense."""

Clues = Mapping[str, tuple[Any, ...]]
"""Clues by their key, verbs as `Verb`."""

_FOLDER = Path(__file__).parent
_VERBS = ("do", "does", "acts")
_SYLLABLES = (
    "ba bel cha dor dre fen gal gri hu jo ka kle lin lo ma mer ni nor ok pel pra qua ri ru sa sho ta tri vel vo"
)
_DETERMINERS = "the,the,the,a,a,my,his,her,our,this,that,your,their,one,Anna's".split(",")
_PLURAL_DETERMINERS = "the,the,,,these,those,my,some,many,two,his,her,our,all,12,no".split(",")
# Slots of a frame: a form of `do`, and an object after it.
_DO, _OBJECT = r"\{(do|did|done|doing|does)\}", r" \{(?:w|aw|cw|b|it)\}"
# The last words of verbs whose object comes after the whole verb.
_BEFORE_OBJECTS = set(
    """about above across against along around at beneath beside by down during for from in into like of off on onto out
    outside over through to toward towards under up upon with within because away together""".split()
)
# Senses without a plural, and their determiners.
_UNCOUNTABLE = {
    "apple.company": [""],
    "jam.food": ["", "", "the", "some", "this", "my", "our"],
    "spring.season": ["", "", "the", "this", "last", "next", "every"],
}


def examples(split: str, seed: int = 0) -> list[tuple[str, str]]:
    """Returns the distinct sentences of a split and their labels; the training sentences are drawn by the seed."""
    check_split(split)
    if split != "train":
        lines = read_lines(_FOLDER / f"natural_{split}.tsv")[1:]
        return [(text, label) for text, _, label in (line.partition("\t") for line in lines)]
    chance = random.Random(f"senses natural {seed}")
    labels, sentences = list(clues()), dict[str, str]()
    while len(sentences) < SIZE:
        label = labels[len(sentences) % len(labels)]
        sentences.setdefault(_sentence(label, chance), label)
    return list(sentences.items())


@functools.cache
def clues() -> dict[str, Clues]:
    """Returns the clues of each sense by its label, such as `"apple.fruit"`."""
    topics = {name: _read_clues(table) for name, table in _read("topics").items()}
    return {
        f"{word}.{sense}": _merged(_read_clues(table), *_topics(topics, table))
        for word, senses in {**_read("clues_1"), **_read("clues_2")}.items()
        for sense, table in senses.items()
    }


def _topics(topics: Mapping[str, Clues], table: Mapping[str, str]) -> list[Clues]:
    """Returns the clues of a sense's topics; of topics `around` it, without the clues about the word itself."""
    around = [topics[name] for name in table.get("around", "").split()]
    own = [topics[name] for name in table.get("topics", "").split()]
    return [*own, *({key: items for key, items in topic.items() if key not in ("does", "is")} for topic in around)]


@functools.cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


@functools.cache
def _everyday() -> Clues:
    tables = _read("everyday")
    lists = {key: tuple(text.split("|")) for key, text in tables.items() if "|" in text}
    rest = {key: text for key, text in tables.items() if key not in lists}
    return {**lists, **_read_clues(rest, ("acts", "verbs"))}


@functools.cache
def _frames(kind: str) -> tuple[str, ...]:
    """Returns the frames of a kind, with verbs split around their objects."""
    whole = re.sub(f"{_DO}(?!{_OBJECT})", r"{\1_all}", _read("frames")[kind])
    return tuple(re.sub(f"{_DO}({_OBJECT})", r"{\1}\2{rest}", whole).split("|"))


def _read_clues(table: Mapping[str, str], verbs: Iterable[str] = _VERBS) -> Clues:
    items = {
        key: [item.strip() for item in text.split(",")]
        for key, text in table.items()
        if key not in ("topics", "around")
    }
    return {key: tuple(Verb.read(item) if key in verbs else item for item in texts) for key, texts in items.items()}


def _merged(*parts: Clues) -> Clues:
    return {key: tuple(dict.fromkeys(item for part in parts for item in part.get(key, ()))) for key in _KEYS}


_KEYS = ("do", "does", "is", "before", "after", "agents", "things", "stuff", "places", "acts")


@functools.cache
def _words(clue: str | Verb) -> frozenset[str]:
    """Returns the words of a clue that are longer than three letters."""
    return frozenset(re.findall(r"\w{4,}", (clue.base if isinstance(clue, Verb) else clue).lower()))


@functools.cache
def _without(label: str, avoided: str) -> Clues:
    """Returns the clues of a sense that share no word with those of other senses, whose labels begin with `avoided`."""
    sources = [source for other, source in clues().items() if other.startswith(avoided)]
    words = {word for source in sources for items in source.values() for clue in items for word in _words(clue)}
    return {key: tuple(clue for clue in items if not _words(clue) & words) for key, items in clues()[label].items()}


def _sentence(label: str, chance: random.Random) -> str:
    """Returns a sentence with a word in one of its senses."""
    text = _clauses(label, chance)
    if chance.random() < 0.12:
        text += chance.choice(_everyday()["endings"])
    if chance.random() < 0.15:
        text = f"{chance.choice(_everyday()['openings'])} {text}"
    text = re.sub(r"(^|[.!?…] |“)(\w)", lambda start: start[1] + start[2].upper(), text)
    if text[-1] not in "?!.":
        text += chance.choices((".", "", "!", "...", ";", ":"), (72, 14, 8, 3, 1, 1))[0]
    return _typed(text, chance.random(), chance)


def _typed(text: str, kind: float, chance: random.Random) -> str:
    """Returns a sentence, sometimes in another case or with other marks, as people type."""
    if kind < 0.07:
        return text.lower()
    if kind < 0.10:
        return text.upper()
    if kind < 0.12:
        return text.title()
    if kind < 0.15:
        return str(chance.choice(_everyday()["marks"])).replace("%", text)
    return text


def _clauses(label: str, chance: random.Random) -> str:
    """Returns one clause, or two; clues are near to the word, far from it, or both."""
    kind = chance.random()
    if kind < 0.42:
        return _fill("near", label, chance)
    if kind < 0.50:
        return f"{_fill('questions', label, chance)}?"
    if kind < 0.54:
        return _fill("requests", label, chance)
    if kind < 0.66:
        first, second = _fill("context", label, chance), _fill("bare", label, chance)
    elif kind < 0.72:
        first, second = _fill("context", label, chance), _fill("near", label, chance)
    elif kind < 0.80:
        first, second = _fill("neutral", label, chance), _fill("near", label, chance)
    else:  # clues of another word, which are neutral, or of the other sense
        word = label.partition(".")[0]
        others = [other for other in clues() if other != label and (kind < 0.92) != other.startswith(f"{word}.")]
        source = _without(chance.choice(others), f"{word}." if kind < 0.92 else label)
        first, second = _fill("context", label, chance, source), _fill("near", label, chance)
    return str(_Slots(label, clues()[label], chance, first=first, second=second).fill("joins"))


def _fill(kind: str, label: str, chance: random.Random, source: Clues | None = None) -> str:
    return _Slots(label, source or clues()[label], chance).fill(kind)


def _invented(chance: random.Random) -> str:
    """Returns an invented word."""
    return "".join(chance.sample(_SYLLABLES.split(), chance.choice((2, 2, 3))))


class _Slots(dict[str, str]):
    """The contents of the slots of one frame.

    Slots of the word are `w`, `aw` (indefinite), `cw` (with an adjective), `b` (with a word next to it), `it`, and
    verbs that agree with it: `were`, `are`, `did_w`. A frame has one verb of each kind, in all its forms: `do` (`did`,
    `done`, `doing`, `does`, with `rest` after an object), `happen` (`happened`, `happens`) and `act` (`acted`,
    `acted_pp`, `acting`). Other slots are drawn at each use, from the clues or, for `who`, `where` or `nice`, from
    neutral words.
    """

    def __init__(self, label: str, source: Clues, chance: random.Random, **filled: str):
        super().__init__(filled)
        self.word = label.partition(".")[0]
        self.label, self.source, self.chance = label, source, chance
        self.is_plural = label not in _UNCOUNTABLE and chance.random() < 0.25
        self.update(self._verbs())

    def fill(self, kind: str) -> str:
        """Returns one of the frames of a kind with its slots filled."""
        return self.chance.choice(_frames(kind)).format_map(self)

    def __missing__(self, slot: str) -> str:
        return _DRAW[slot](self)

    def draw(self, key: str) -> Any:
        """Returns a clue, or an everyday word if the source has no clues of the key."""
        return self.chance.choice(self.source.get(key) or _everyday()[_INSTEAD[key]])

    def everyday(self, key: str) -> str:
        """Returns a neutral word; sometimes an invented one."""
        if key in ("qualities", "names") and self.chance.random() < 0.1:
            invented = _invented(self.chance)
            return invented.capitalize() if key == "names" else invented
        return str(self.chance.choice(_everyday()[key]))

    def _verbs(self) -> dict[str, str]:
        do, does, act = (self.draw(key) for key in _VERBS)
        neutral = self.chance.choice(_everyday()["acts"])
        happens, happened = does.third, does.past
        if self.is_plural:
            happens = re.sub("^be ", "are ", does.base)
            happened = re.sub("^was ", "were ", happened)
        forms = dict(_around_object(do))
        forms |= {"act": act.base, "acted": act.past, "acted_pp": act.participle, "acting": act.gerund}
        forms |= {"nact": neutral.base, "nacted": neutral.past}
        forms |= {"happen": does.base, "happened": happened, "happens": happens}
        number = ("are", "were", "them") if self.is_plural else ("is", "was", "it")
        return forms | dict(zip(("are", "were", "it"), number, strict=True))

    def name(self) -> str:
        """Returns the word itself; a company mostly has a capital."""
        name = plural(self.word) if self.is_plural else self.word
        return name.capitalize() if self.label == "apple.company" and self.chance.random() < 0.8 else name

    def noun(self, adjective: str = "", indefinite: bool = False) -> str:
        """Returns the word with an article or the like, and an adjective if there is one."""
        noun = f"{adjective} {self.name()}".lstrip()
        if self.label in _UNCOUNTABLE:
            determiners = _UNCOUNTABLE[self.label]
        elif self.is_plural:
            determiners = ["", "some", "two"] if indefinite else _PLURAL_DETERMINERS
        else:
            determiners = ["a"] if indefinite else _DETERMINERS
        return _determined(self.chance.choice(determiners), noun)

    def beside(self) -> str:
        """Returns the word with a clue next to it, such as "a golf club" or "the club members"."""
        if self.chance.random() < 0.5:
            return f"{self.draw('before')} {self.name()}"
        noun = f"{self.name()} {self.draw('after')}"
        return _determined(self.chance.choice(("the", "a", "his", "my", "this", "")), noun)

    def person(self) -> str:
        """Returns a name, or a noun for a person."""
        return self.everyday(self.chance.choice(("names", "people")))


@functools.cache
def _around_object(verb: Verb) -> Mapping[str, str]:
    """Returns the forms of a verb without the words after its object, which are `rest`, and with them (`_all`).

    `rest` is everything after "throw" in "throw into the fire", but empty for "look at".
    """
    _, space, after = verb.base.partition(" ")
    rest = "" if after.rpartition(" ")[2] in _BEFORE_OBJECTS else space + after
    forms = dict(zip(("do", "did", "done", "doing", "does"), (*verb, verb.gerund, verb.third), strict=True))
    parted = {name: form.removesuffix(rest) for name, form in forms.items()}
    return parted | {f"{name}_all": form for name, form in forms.items()} | {"rest": rest}


def _determined(determiner: str, noun: str) -> str:
    return with_article(noun) if determiner == "a" else f"{determiner} {noun}".lstrip()


def _around(slots: _Slots, key: str, many: Iterable[str] = ()) -> str:
    """Returns a noun with an article, or in the plural with a determiner of `many`; a name without one."""
    noun = str(slots.draw(key))
    if noun[0].isupper():
        return noun
    one = ("the", "the", "a", "our")
    number = slots.chance.randrange(len(one) + len(choices := tuple(many)))
    return _determined(one[number], noun) if number < len(one) else f"{choices[number - len(one)]} {plural(noun)}"


# Everyday words that replace a missing kind of clue.
_INSTEAD = {
    "do": "verbs",
    "does": "acts",
    "acts": "acts",
    "is": "qualities",
    "agents": "people",
    "places": "somewhere",
    "things": "people",
    "stuff": "people",
    "before": "qualities",
    "after": "somewhere",
}

_DRAW: dict[str, Callable[[_Slots], str]] = {
    "w": lambda slots: slots.noun(slots.everyday("qualities") if slots.chance.random() < 0.15 else ""),
    "aw": lambda slots: slots.noun(indefinite=True),
    "cw": lambda slots: slots.noun(slots.draw("is")),
    "b": _Slots.beside,
    "did_w": lambda slots: f"did {slots.noun()}",
    "is": lambda slots: slots.draw("is"),
    "stuff": lambda slots: slots.draw("stuff"),
    "place": lambda slots: slots.draw("places"),
    "thing": lambda slots: _around(slots, "things"),
    "things": lambda slots: _around(slots, "things", ("some", "the", "many")),
    "agent": lambda slots: _around(slots, "agents"),
    "agents": lambda slots: _around(slots, "agents", ("some", "the", "the two")),
    "agent_bare": lambda slots: slots.draw("agents"),
    "who": lambda slots: slots.everyday("pronouns") if slots.chance.random() < 0.45 else slots.person(),
    "who_object": _Slots.person,
    "he": lambda slots: slots.everyday(slots.chance.choice(("names", "singular"))),
    "when": lambda slots: slots.everyday("times"),
    "where": lambda slots: slots.everyday("somewhere"),
    "how": lambda slots: slots.everyday("adverbs"),
    "nice": lambda slots: slots.everyday("qualities"),
    "praise": lambda slots: slots.everyday("praise"),
    "liked": lambda slots: slots.chance.choice(_everyday()["verbs"]).past,
}
