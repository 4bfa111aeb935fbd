"""Forms of verbs and nouns."""

from training.data.formats.senses.english import Verb, plural, with_article

VERBS = (
    ("peel", ("peel", "peeled", "peeling", "peels")),
    ("chop the wood", ("chop the wood", "chopped the wood", "chopping the wood", "chops the wood")),
    ("bite into/bit into/bitten into", ("bite into", "bit into", "biting into", "bites into")),
    ("core", ("core", "cored", "coring", "cores")),
    ("carry", ("carry", "carried", "carrying", "carries")),
    ("play", ("play", "played", "playing", "plays")),
    ("tie", ("tie", "tied", "tying", "ties")),
    ("fix", ("fix", "fixed", "fixing", "fixes")),
    ("wash", ("wash", "washed", "washing", "washes")),
    ("visit", ("visit", "visited", "visiting", "visits")),
    ("unplug", ("unplug", "unplugged", "unplugging", "unplugs")),
    ("quit", ("quit", "quitted", "quitting", "quits")),
    ("be late/was late/been late", ("be late", "was late", "being late", "is late")),
    ("have fun/had fun/had fun", ("have fun", "had fun", "having fun", "has fun")),
    ("see/saw/seen", ("see", "saw", "seeing", "sees")),
)


def test_verbs(subtests):
    for text, forms in VERBS:
        with subtests.test(text):
            verb = Verb.read(text)
            assert (verb.base, verb.past, verb.gerund, verb.third) == forms


def test_participles():
    assert Verb.read("bite/bit/bitten").participle == "bitten"
    assert Verb.read("look at").participle == "looked at"


def test_nouns():
    nouns = ["apple", "mouse", "match", "cherry", "toy", "computer mouse"]
    assert [plural(noun) for noun in nouns] == ["apples", "mice", "matches", "cherries", "toys", "computer mice"]
    assert [with_article(noun) for noun in ("apple", "Oscar", "pen")] == ["an apple", "an Oscar", "a pen"]
