"""The `dates` dataset: dates as people write them in 32 locales, to be rewritten as ISO 8601.

    Σάββατο 4 Οκτωβρίου 1986   →  1986-10-04
    ۴ اکتبر ۱۹۸۶               →  1986-10-04

Formats, month names and weekday names are the Unicode CLDR's, as shipped with Babel; nothing is
downloaded. Babel formats in the Gregorian calendar and with ASCII digits only, so native digits (Arabic,
Persian, Devanagari) are inserted here where CLDR names such a system for the locale.

A rendering is used only if it can be read in one way. "1/2/1999" is left out, since it depends on the country,
and so is "4 listopada 1987", which is October in Croatian and November in Polish: a (locale, form, month)
is dropped when its skeleton — digits masked, punctuation, case and weekday ignored — has another reading
anywhere in the collection. Months in digits are used where the year comes first or the fields are marked
(年月日).

Every day from 1900 to 2099 belongs to one split, for every seed: the training split has no date of the test split, in
any language.
"""

import functools
import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from babel import Locale
from babel.dates import tokenize_pattern

from training.data.dataset import Pairs, ParallelData, check_split
from training.data.registry import register_data
from zoo.errors import InputError, unknown_name

SCRIPTS = {
    "Latin": tuple("en de fr es it pt nl sv da fi pl cs hu ro hr tr id vi".split()),
    "Cyrillic": ("ru", "uk", "bg", "sr"),
    "Greek": ("el",),
    "Hebrew": ("he",),
    "Arabic": ("ar", "fa"),
    "Armenian": ("hy",),
    "Georgian": ("ka",),
    "Devanagari": ("hi",),
    "Han": ("zh",),
    "Japanese": ("ja",),
    "Hangul": ("ko",),
}
"""The locales by their script."""

FIRST_YEAR, LAST_YEAR = 1900, 2099
SIZES = {"train": 40_000, "val": 1_000, "test": 2_000}
"""Pairs in each split."""

# CLDR names a locale's numbering systems, and Babel passes the names on; the digits themselves are Unicode's.
_ZEROS = {"latn": "0", "arab": "\u0660", "arabext": "\u06f0", "deva": "\u0966"}
_DIGITS = {
    system: str.maketrans({str(digit): chr(ord(zero) + digit) for digit in range(10)})
    for system, zero in _ZEROS.items()
}
# Non-breaking spaces become plain ones, and invisible bidi marks are removed.
_PLAIN = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u200e": None, "\u200f": None})
_LOWER_SHARE = 0.125


@dataclass(frozen=True)
class Example:
    """One pair of the dataset."""

    locale: str  # CLDR locale of the text, such as `"el"`
    text: str
    iso: str  # the same date as YYYY-MM-DD


@dataclass(frozen=True)
class Form:
    """A way to write dates in one locale."""

    locale: str
    name: str  # `"full"`, `"long"`, `"medium"`, `"short"`, a CLDR skeleton such as `"yMMMd"`, or `"d MMMM y"`
    pattern: str
    digits: tuple[str, ...]  # numbering systems that the locale uses; `"latn"` comes first
    # The parsed pattern: text, or a field letter of `ydME` with its table of renderings by number (no table for
    # the year).
    parts: tuple[str | tuple[str, tuple[str, ...]], ...]

    def render(self, day: date, digits: str = "latn") -> str:
        """Returns `day` written in this form with the digits of a numbering system."""
        values = {"M": day.month, "d": day.day, "E": day.weekday()}
        text = ""
        for part in self.parts:
            if isinstance(part, str):
                text += part
            elif part[0] == "y":
                text += str(day.year)
            else:
                text += part[1][values[part[0]]]
        return text.translate(_PLAIN).translate(_DIGITS[digits])

    def reading(self, month: int) -> tuple[str, tuple[tuple[str, ...], int | None]]:
        """Returns the visible skeleton of a month, and its meaning: the order of the numbers, and the named month."""
        visible, roles, named_month = [], [], None
        for part in self.parts:
            if isinstance(part, str):
                visible.append(part)
            elif part[0] == "M":
                name = part[1][month]
                visible.append(re.sub(r"\d+", "#", name))
                if any(character.isdigit() for character in name):
                    roles.append("M")
                else:
                    named_month = month
            elif part[0] != "E":
                visible.append("####" if part[0] == "y" else "#")
                roles.append(part[0])
        return _skeleton("".join(visible)), (tuple(roles), named_month)


def locales() -> tuple[str, ...]:
    """Returns the locales of the dataset."""
    return tuple(locale for group in SCRIPTS.values() for locale in group)


def forms(locale: str, month: int | None = None) -> tuple[Form, ...]:
    """Returns the forms of a locale that can be read in one way only.

    Args:
        locale: One of `locales()`.
        month: Number of a month, from 1 to 12, to return its forms only; `None` for those of any month.

    Raises:
        InputError: The locale is not in the dataset.
    """
    if locale not in locales():
        raise unknown_name("dates locale", locale, locales())
    months = range(1, 13) if month is None else (month,)
    unambiguous = (form for number in months for form in _unambiguous()[number].get(locale, ()))
    return tuple(dict.fromkeys(unambiguous))


def render(day: date, locale: str, form: str | None = None, digits: str | None = None) -> str:
    """Formats a date.

    Args:
        day: The date, 1000 or later.
        locale: One of `locales()`.
        form: Name of a form; `None` takes `"long"`, or the first other that is unambiguous.
        digits: A numbering system; `None` takes the native one where there is one.

    Returns:
        The date as in a line of the dataset, in its usual case.

    Raises:
        InputError: The dataset has no such rendering.
    """
    candidates = {candidate.name: candidate for candidate in forms(locale, day.month)}
    if not candidates:
        raise InputError(f"Every form for month {day.month} in {locale!r} is ambiguous; take another month or locale.")
    if form is None:
        form = "long" if "long" in candidates else next(iter(candidates))
    if form not in candidates:
        raise unknown_name(f"unambiguous form of month {day.month} in {locale!r}", form, candidates)
    systems = candidates[form].digits
    if digits is not None and digits not in systems:
        raise unknown_name(f"numbering system of {locale!r}", digits, systems)
    return candidates[form].render(day, digits or systems[-1])


def in_every_script(day: date, scripts: Sequence[str] | None = None) -> dict[str, str]:
    """Formats one date once in each script.

    Args:
        day: The date; `days("test")` are not in the training data.
        scripts: Which of `SCRIPTS`; `None` for all.

    Returns:
        Script to text, in the first locale of each script that has an unambiguous form for the month.

    Raises:
        InputError: A script is unknown.
    """
    texts = {}
    for script in SCRIPTS if scripts is None else scripts:
        if script not in SCRIPTS:
            raise unknown_name("script", script, SCRIPTS)
        texts[script] = next(render(day, locale) for locale in SCRIPTS[script] if forms(locale, day.month))
    return texts


@functools.cache
def days(split: str) -> tuple[date, ...]:
    """Returns the days of a split: 85 % train, 5 % val, 10 % test, the same for every seed."""
    check_split(split)
    first, last = date(FIRST_YEAR, 1, 1).toordinal(), date(LAST_YEAR, 12, 31).toordinal()
    ordinals = list(range(first, last + 1))
    random.Random("the days of each split").shuffle(ordinals)
    test, val = len(ordinals) // 10, len(ordinals) // 20
    splits = {"test": ordinals[:test], "val": ordinals[test : test + val], "train": ordinals[test + val :]}
    return tuple(date.fromordinal(ordinal) for ordinal in splits[split])


def examples(split: str, seed: int = 0) -> list[Example]:
    """Generates a split: distinct days, each in a random locale and form, all drawn by the seed.

    Native digits are used half the time where the locale has them, and an eighth of the texts is in lower case.
    """
    chance = random.Random(f"dates {split} {seed}")
    chosen = chance.sample(days(split), SIZES[split])
    by_month = {month: list(groups.values()) for month, groups in _unambiguous().items()}
    return [_example(day, by_month[day.month], chance) for day in chosen]


@register_data("dates", "dates")
def load_dates(spec: str, seed: int = 0) -> ParallelData:
    """Opens the generated dataset; the default tokenizer is characters, with a vocabulary for each side."""

    def load_split(name: str) -> Pairs:
        pairs = examples(name, seed)
        return Pairs([example.text for example in pairs], [example.iso for example in pairs])

    return ParallelData(spec=spec, tokenizer="chars", shared_vocabulary=False, load_split=load_split)


def _example(day: date, groups: Sequence[Sequence[Form]], chance: random.Random) -> Example:
    """Draws a locale, then a form, so that a locale with few forms is not rare."""
    form = chance.choice(chance.choice(groups))
    text = form.render(day, chance.choice(form.digits))
    if chance.random() < _LOWER_SHARE:
        text = text.lower()
    return Example(form.locale, text, day.isoformat())


@functools.cache
def _unambiguous() -> dict[int, dict[str, list[Form]]]:
    """Returns month → locale → forms whose skeleton has one reading in the whole collection."""
    collection = [form for locale in locales() for form in _all_forms(locale)]
    readings = defaultdict(set)
    for form in collection:
        for month in range(1, 13):
            skeleton, reading = form.reading(month)
            readings[skeleton].add(reading)
    unambiguous: dict[int, dict[str, list[Form]]] = {month: {} for month in range(1, 13)}
    for form in collection:
        for month, groups in unambiguous.items():
            if len(readings[form.reading(month)[0]]) == 1:
                groups.setdefault(form.locale, []).append(form)
    return unambiguous


def _all_forms(locale: str) -> list[Form]:
    """Returns the CLDR forms of a locale, without patterns that only a native can understand."""
    data = Locale.parse(locale)
    patterns = {name: data.date_formats[name].pattern for name in ("long", "full", "medium", "short")}
    skeletons = data.datetime_skeletons
    patterns |= {name: skeletons[name].pattern for name in ("yMMMMd", "yMMMd", "yMd") if name in skeletons}
    if not patterns["long"].startswith("y"):
        patterns["d MMMM y"] = "d MMMM y"
    systems = (data.default_numbering_system, data.other_numbering_systems.get("native"))
    digits = tuple(dict.fromkeys(["latn", *(system for system in systems if system in _ZEROS)]))
    first_names = {pattern: name for name, pattern in reversed(patterns.items())}
    return [
        Form(locale, name, pattern, digits, tuple(_part(token, data) for token in _tokens(pattern)))
        for name, pattern in patterns.items()
        if first_names[pattern] == name and _can_be_placed(pattern)
    ]


def _can_be_placed(pattern: str) -> bool:
    """Returns whether the meaning of each number is clear: a full year, and no month in digits between others."""
    fields = [value for value in _tokens(pattern) if not isinstance(value, str)]
    widths = dict(fields)
    month = widths.get("M", widths.get("L"))
    if month is None or "d" not in widths or widths.get("y") not in (1, 4):
        return False
    return month > 2 or fields[0][0] == "y" or "月" in pattern


def _tokens(pattern: str) -> list[str | tuple[str, int]]:
    """Splits a CLDR pattern into text and (field letter, width)."""
    return [value for _, value in tokenize_pattern(pattern)]


def _part(token: str | tuple[str, int], data: Locale) -> str | tuple[str, tuple[str, ...]]:
    """Returns one of `Form.parts`: text, or a field with its table of renderings for each day, month or weekday."""
    if isinstance(token, str):
        return token
    letter, width = token
    context = "stand-alone" if letter in "Lc" else "format"
    name_width = "wide" if width == 4 else "abbreviated"
    if letter == "y":
        return "y", ()
    if letter == "d":
        return "d", tuple(f"{number:0{width}d}" for number in range(32))
    if letter in "Ec":
        return "E", tuple(data.days[context][name_width][weekday] for weekday in range(7))
    if width <= 2:
        return "M", tuple(f"{number:0{width}d}" for number in range(13))
    names = data.months[context][name_width]
    return "M", ("", *(names[month] for month in range(1, 13)))


def _skeleton(text: str) -> str:
    """Returns a text with case, composition, spacing and punctuation normalised."""
    folded = unicodedata.normalize("NFC", text.translate(_PLAIN).casefold())
    # "#" is punctuation to Unicode, but here it replaces digits.
    characters = (c if c == "#" or not unicodedata.category(c).startswith("P") else " " for c in folded)
    return " ".join("".join(characters).split())
