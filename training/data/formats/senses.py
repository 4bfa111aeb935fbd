"""The `senses` dataset: sentences around a word of two senses, to be labelled with the sense that is meant.

    Yesterday Ann peeled the other one before Leo sued apple at last.     apple.company
    Yesterday Ann peeled apple before Leo sued the other one at last.     apple.fruit

Sentences come in such pairs, of the same words and with different labels: each has two verbs, one that suits either
sense, and the word is the object of one of them. So what counts is which verb the word stands with. A model that does
not see the order of the words is right about exactly one half of every pair, in training and in the test.

The sentences of a split have templates of their own, whatever the seed; verbs and names are those of training. Nouns
are in lower case, because a capital would tell the company. No punctuation stands beside what is exchanged, so that the
two sentences have the same tokens whatever the tokenizer.
"""

import random

from training.data.dataset import SPLITS, Labelled, LabelledData
from training.data.registry import register_data
from zoo.errors import unknown_name

SENSES = {
    "apple": {
        "fruit": "peel/peeled, chop/chopped, grate/grated, taste/tasted, bake with/baked with",
        "company": "sue/sued, invest in/invested in, work for/worked for, phone/phoned, buy shares in/bought shares in",
    },
    "bank": {
        "money": "rob/robbed, borrow from/borrowed from, owe money to/owed money to, work for/worked for, phone/phoned",
        "river": "fish from/fished from, swim to/swam to, camp on/camped on, wade to/waded to, row along/rowed along",
    },
    "bat": {
        "animal": "feed/fed, wake/woke, tame/tamed, nurse/nursed, frighten/frightened",
        "sport": "swing/swung, grip/gripped, varnish/varnished, hit a ball with/hit a ball with, play with/played with",
    },
    "bow": {
        "weapon": "shoot with/shot with, draw/drew, string/strung, aim/aimed, hunt with/hunted with",
        "ribbon": "tie/tied, untie/untied, iron/ironed, wear/wore, sew on/sewed on",
    },
    "chip": {
        "food": "salt/salted, fry/fried, chew/chewed, swallow/swallowed, taste/tasted",
        "computer": "solder/soldered, program/programmed, design/designed, plug in/plugged in, test/tested",
    },
    "club": {
        "members": "join/joined, lead/led, resign from/resigned from, fund/funded, work for/worked for",
        "stick": "swing/swung, grip/gripped, carve/carved, throw/threw, hit a ball with/hit a ball with",
    },
    "crane": {
        "bird": "feed/fed, tame/tamed, nurse/nursed, breed/bred, frighten/frightened",
        "machine": "operate/operated, repair/repaired, oil/oiled, weld/welded, rent/rented",
    },
    "date": {
        "fruit": "chop/chopped, chew/chewed, taste/tasted, swallow/swallowed, bake with/baked with",
        "day": "postpone/postponed, confirm/confirmed, cancel/cancelled, agree on/agreed on, wait for/waited for",
    },
    "jam": {
        "food": "spread/spread, stir/stirred, boil/boiled, sweeten/sweetened, taste/tasted",
        "traffic": "sit in/sat in, avoid/avoided, escape from/escaped from, drive into/drove into, report/reported",
    },
    "match": {
        "game": "win/won, lose/lost, postpone/postponed, cancel/cancelled, train for/trained for",
        "fire": "strike/struck, light/lit, blow out/blew out, burn/burned, put out/put out",
    },
    "mouse": {
        "animal": "feed/fed, trap/trapped, chase/chased, poison/poisoned, frighten/frightened",
        "computer": "click/clicked, plug in/plugged in, unplug/unplugged, scroll with/scrolled with, repair/repaired",
    },
    "organ": {
        "music": "play/played, tune/tuned, dust/dusted, practise on/practised on, compose for/composed for",
        "body": "transplant/transplanted, donate/donated, operate on/operated on, scan/scanned, heal/healed",
    },
    "palm": {
        "hand": "scratch/scratched, bandage/bandaged, kiss/kissed, tickle/tickled, wash/washed",
        "tree": "plant/planted, climb/climbed, water/watered, prune/pruned, fell/felled",
    },
    "pen": {
        "ink": "write with/wrote with, sign with/signed with, refill/refilled, draw with/drew with, cap/capped",
        "animals": "fence/fenced, muck out/mucked out, keep pigs in/kept pigs in, herd sheep into/herded sheep into, "
        "sweep/swept",
    },
    "pitcher": {
        "jug": "fill/filled, rinse/rinsed, pour from/poured from, drink from/drank from, refill/refilled",
        "player": "coach/coached, interview/interviewed, applaud/applauded, hire/hired, play with/played with",
    },
    "seal": {
        "animal": "feed/fed, tame/tamed, nurse/nursed, swim with/swam with, hunt/hunted",
        "stamp": "ink/inked, engrave/engraved, forge/forged, press/pressed, carve/carved",
    },
    "spring": {
        "season": "wait for/waited for, long for/longed for, dream of/dreamt of, marry in/married in, "
        "plant beans in/planted beans in",
        "coil": "stretch/stretched, compress/compressed, wind/wound, oil/oiled, bend/bent",
    },
    "star": {
        "sky": "gaze at/gazed at, navigate by/navigated by, orbit/orbited, chart/charted, aim a telescope at/aimed a "
        "telescope at",
        "fame": "interview/interviewed, applaud/applauded, marry/married, dance with/danced with, hire/hired",
    },
}
"""Word to sense to verbs that suit it alone, each as infinitive/past."""

TEMPLATES = {
    "train": (
        "{a} {did1} {x1} and {b} {did2} {x2} soon after.",
        "Yesterday {a} {did1} {x1} before {b} {did2} {x2} at last.",
        "Last week {a} {did1} {x1} while {b} {did2} {x2} all day long.",
        "After {a} {did1} {x1} last night nobody {did2} {x2} again.",
        "{a} wanted to {do1} {x1} but had to {do2} {x2} first.",
        "It was {a} who {did1} {x1} and then {did2} {x2} without a word.",
        "We remember how {a} {did1} {x1} and how {b} {did2} {x2} later that day.",
        "My sister {did1} {x1} in the morning and {did2} {x2} in the evening.",
        "As soon as {a} {did1} {x1} we all {did2} {x2} together.",
        "Nobody believed that {a} {did1} {x1} or that {b} {did2} {x2} back then.",
        "Before you {do1} {x1} please help me to {do2} {x2} once more.",
        "They {did1} {x1} twice and {did2} {x2} only once.",
        "{a} used to {do1} {x1} every summer and to {do2} {x2} every winter.",
        "On Monday {a} and {b} {did1} {x1} and on Friday they {did2} {x2} for fun.",
        "Instead of going home {a} {did1} {x1} and quietly {did2} {x2} until late.",
        "I told {a} to {do1} {x1} and {b} to {do2} {x2} as well.",
        "Somebody {did1} {x1} long before anybody {did2} {x2} here.",
        "If you {do1} {x1} today then I will {do2} {x2} tomorrow.",
        "The children {did1} {x1} because their parents {did2} {x2} so often.",
        "In the end {a} neither {did1} {x1} nor {did2} {x2} that year.",
        "{a} can {do1} {x1} faster than {b} can {do2} {x2} these days.",
        "When I was young we {did1} {x1} and sometimes {did2} {x2} after school.",
        "The old man {did1} {x1} with great care and {did2} {x2} in a hurry.",
        "Either you {do1} {x1} now or we {do2} {x2} without you.",
        "Our teacher {did1} {x1} on the way here and {did2} {x2} on the way back.",
        "{a} promised to {do1} {x1} as long as {b} would {do2} {x2} in return.",
        "What surprised me was that {a} {did1} {x1} and {did2} {x2} within an hour.",
        "The two brothers {did1} {x1} but their cousin {did2} {x2} all alone.",
        "Did {a} really {do1} {x1} just to {do2} {x2} afterwards?",
        "People say that {a} {did1} {x1} for a living and {did2} {x2} for pleasure.",
        "First {a} {did1} {x1} and only then {b} {did2} {x2} with a smile.",
        "Let us {do1} {x1} tonight and {do2} {x2} some other time.",
        "{a} tried to {do1} {x1} although nobody could {do2} {x2} any more.",
        "For years {a} {did1} {x1} and never {did2} {x2} in public.",
        "Not only did {a} {do1} {x1} last month but {b} also {did2} {x2} for free.",
        "There was a time when {a} {did1} {x1} daily and {did2} {x2} every week.",
        "The film shows a woman who {did1} {x1} and a man who {did2} {x2} at night.",
        "According to the neighbours {a} {did1} {x1} and perhaps {did2} {x2} too.",
        "You should {do1} {x1} more often and {do2} {x2} less often.",
        "{a} will {do1} {x1} next week unless {b} can {do2} {x2} by then.",
        "Once {a} had learned to {do1} {x1} it was easy to {do2} {x2} the same way.",
        "Our guests {did1} {x1} after lunch and gladly {did2} {x2} before dinner.",
        "To the surprise of everyone {a} {did1} {x1} and even {did2} {x2} that evening.",
        "She {did1} {x1} again and he {did2} {x2} instead.",
    ),
    "val": (
        "Yesterday I told them how {a} {did1} {x1} and then {did2} {x2} again.",
        "{a} and {b} used to {do1} {x1} on Friday and to {do2} {x2} after school.",
        "Before {a} {did1} {x1} that day {b} {did2} {x2} in public.",
        "You will {do1} {x1} first and we will {do2} {x2} later.",
        "The man who {did1} {x1} last week {did2} {x2} too.",
        "Perhaps {a} {did1} {x1} for free or {did2} {x2} for a living.",
    ),
    "test": (
        "In the morning {a} and {b} {did1} {x1} but nobody {did2} {x2} in the evening.",
        "{a} had to {do1} {x1} because {b} wanted to {do2} {x2} so often.",
        "People believed that {a} {did1} {x1} every week and {did2} {x2} on Monday.",
        "While I {did1} {x1} at home {a} quietly {did2} {x2} in return.",
        "If {a} can {do1} {x1} for fun then you can {do2} {x2} as well.",
        "Our cousin {did1} {x1} last summer and sometimes {did2} {x2} with great care.",
        "Please {do1} {x1} before dinner and help {a} to {do2} {x2} after lunch.",
        "It was easy to {do1} {x1} but nobody could {do2} {x2} in a hurry.",
        "The old woman {did1} {x1} once and {did2} {x2} twice within an hour.",
        "What {a} told me was that {b} {did1} {x1} and never {did2} {x2} that night.",
        "Last night my brothers {did1} {x1} until late and {did2} {x2} all alone.",
        "Somebody will {do1} {x1} tomorrow unless you {do2} {x2} today.",
        "Only {a} {did1} {x1} here although {b} {did2} {x2} long before.",
        "When {a} was young she {did1} {x1} all day and {did2} {x2} all night.",
    ),
}
"""Split to sentences with the names a and b and, twice, a verb and its object x."""

SIZES = {"train": 12_000, "val": 1_000, "test": 2_000}
"""Sentences in each split."""

_NAMES = tuple(
    "Ann Ben Carla David Emma Felix Hugo Ida Jack Kim Leo Mia Noah Olga Paul Sam Tina Victor Wendy Zoe".split()
)
_NOUN_PHRASES = (
    "the {}",
    "that {}",
    "the same {}",
    "the other {}",
    "the only {}",
    "the last {}",
    "the very first {}",
    "one more {}",
    "yet another {}",
    "one particular {}",
)
# A company has no article.
_BARE_PHRASES = {"apple": ("{}", "{}", "only {}", "mainly {}", "just {}")}
_OTHERS = (
    "something else",
    "the other one",
    "everything else",
    "all the rest",
    "one thing or another",
    "a few of the others",
    "what was left",
    "nothing else",
    "several of them",
    "a good many more",
)


def examples(split: str, seed: int = 0) -> list[tuple[str, str]]:
    """Generates a split: distinct sentences and the label of each; examples 2n and 2n + 1 have the same words.

    Every word is there about equally often, either of its senses exactly so.

    Args:
        split: `"train"`, `"val"` or `"test"`.
        seed: Draws the sentences.

    Raises:
        InputError: There is no such split.
    """
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    chance = random.Random(f"senses {split} {seed}")
    words = list(SENSES)
    made: dict[str, str] = {}
    while len(made) < SIZES[split]:
        # A pair that is there already changes nothing.
        made |= _pair(words[len(made) // 2 % len(words)], chance.choice(TEMPLATES[split]), chance)
    return list(made.items())


@register_data("senses", "senses")
def load_senses(spec: str, seed: int = 0) -> LabelledData:
    """Opens the generated dataset.

    Args:
        spec: `senses`.
        seed: See `examples`.

    Returns:
        The dataset; by default words.
    """

    def load_split(name: str) -> Labelled:
        made = examples(name, seed)
        return Labelled([text for text, _ in made], [label for _, label in made])

    return LabelledData(spec=spec, tokenizer="words", load_split=load_split)


def _pair(word: str, template: str, chance: random.Random) -> dict[str, str]:
    """Returns two sentences of the same words and the label of each."""
    senses = chance.sample(list(SENSES[word]), 2)
    verbs = [chance.choice(SENSES[word][sense].split(", ")).split("/") for sense in senses]
    noun = chance.choice(_BARE_PHRASES.get(word, _NOUN_PHRASES)).format(word)
    other = chance.choice(_OTHERS)
    a, b = chance.sample(_NAMES, 2)
    (do1, did1), (do2, did2) = verbs
    frame = {"a": a, "b": b, "do1": do1, "did1": did1, "do2": do2, "did2": did2}
    objects = [{"x1": noun, "x2": other}, {"x1": other, "x2": noun}]
    return {template.format(**frame, **x): f"{word}.{sense}" for x, sense in zip(objects, senses, strict=True)}
