"""The `dates` dataset: faithful to CLDR, readable in one way only, and without leaks between splits."""

import re
import unicodedata
from collections import Counter, defaultdict
from datetime import date

import pytest
from babel.dates import format_date

from training.data import load_data
from training.data.formats import dates
from zoo.errors import InputError

_SPACES = re.compile("[\u00a0\u2009\u202f]")
_MARKS = re.compile("[\u200e\u200f]")
_SAMPLE = [date(1987, 1, 31), date(2003, 2, 5), date(1900, 7, 9), date(2099, 12, 30), date(2020, 10, 11)]


def _western(text: str) -> str:
    """Returns `text` with every decimal digit, of any script, as an ASCII digit."""
    return "".join(str(unicodedata.decimal(c)) if unicodedata.category(c) == "Nd" else c for c in text)


@pytest.fixture(scope="module")
def splits():
    return {name: dates.examples(name, seed=0) for name in ("train", "val", "test")}


def test_renderings_are_babels(subtests):
    days = [*_SAMPLE, *(date(1961, month, 13 + month) for month in range(1, 13))]
    for locale in dates.locales():
        with subtests.test(locale):
            for day, form in ((each, form) for each in days for form in dates.forms(locale, each.month)):
                named = form.name in ("full", "long", "medium", "short")
                expected = format_date(day, form.name if named else form.pattern, locale)
                expected = _MARKS.sub("", _SPACES.sub(" ", expected))
                assert form.render(day) == expected
                for digits in form.digits:
                    assert _western(form.render(day, digits)) == _western(expected)


def test_known_renderings():
    day = date(1986, 10, 4)
    assert dates.render(day, "fa") == "۴ اکتبر ۱۹۸۶"
    assert dates.render(day, "ar") == "٤ أكتوبر ١٩٨٦"
    assert dates.render(day, "hi") == "४ अक्टूबर १९८६"
    assert dates.render(day, "fa", digits="latn") == "4 اکتبر 1986"
    day = date(2025, 8, 3)
    assert dates.render(day, "en") == "August 3, 2025"
    assert dates.render(day, "el", "full") == "Κυριακή 3 Αυγούστου 2025"
    assert dates.render(day, "ru") == "3 августа 2025 г."
    assert dates.render(day, "ja") == "2025年8月3日"
    assert dates.render(day, "ko", "yMMMd") == "2025년 8월 3일"
    assert dates.render(day, "hu", "short") == "2025. 08. 03."


def test_the_ambiguous_is_left_out():
    assert dates.forms("hr", 10) == ()  # "listopada" is November next door
    assert dates.forms("pl", 11) == ()
    assert "medium" not in {form.name for form in dates.forms("pl", 7)}  # "lip" is June in Croatian
    assert {form.name for form in dates.forms("pl", 7)} == {"long", "full"}
    assert "short" not in {form.name for form in dates.forms("en")}  # 1/2/99


def test_no_two_dates_share_a_text(splits):
    seen = defaultdict(set)
    for example in (example for made in splits.values() for example in made):
        seen[example.text.casefold()].add(example.iso)
    assert [text for text, isos in seen.items() if len(isos) > 1] == []


def test_every_skeleton_has_one_reading():
    """Masks whole texts, unlike the generator, which masks patterns."""
    months = defaultdict(set)
    for locale in dates.locales():
        for month in range(1, 13):
            for form in dates.forms(locale, month):
                masked = re.sub(r"\d{4}", "Y", _western(form.render(date(1961, month, 23)))).replace("23", "D")
                months[masked.casefold()].add(month)
    assert [masked for masked, found in months.items() if len(found) > 1] == []


def test_numeric_months_come_after_the_year_or_are_marked():
    for locale in dates.locales():
        for form in dates.forms(locale):
            text = _western(form.render(date(1961, 2, 3)))
            if len(re.findall(r"\d+", text)) == 3:
                assert text.startswith("1961") or "th" in text, text


def test_sizes_scripts_and_locales(splits):
    assert {name: len(made) for name, made in splits.items()} == {"train": 40_000, "val": 1_000, "test": 2_000}
    assert len(dates.locales()) == 32
    assert len(dates.SCRIPTS) == 11
    for name, made in splits.items():
        counts = Counter(example.locale for example in made)
        assert set(counts) == set(dates.locales())
        assert min(counts.values()) >= len(made) // 32 // 2, name


def test_months_are_covered_in_training(splits):
    seen = {(example.locale, example.iso[5:7]) for example in splits["train"]}
    available = {
        (locale, f"{month:02d}") for locale in dates.locales() for month in range(1, 13) if dates.forms(locale, month)
    }
    assert seen == available


def test_splits_share_no_date_whatever_the_seed(splits):
    train = {example.iso for example in splits["train"]}
    for seed in (0, 7):
        for name in ("val", "test"):
            assert train.isdisjoint(example.iso for example in dates.examples(name, seed))
    assert set(dates.days("val")).isdisjoint(dates.days("test"))
    assert sum(len(dates.days(name)) for name in ("train", "val", "test")) == 73_049  # 200 years
    for made in splits.values():
        assert len({example.iso for example in made}) == len(made)


def test_targets_are_iso_and_texts_plain(splits):
    for example in splits["test"]:
        assert date.fromisoformat(example.iso).isoformat() == example.iso
        assert "1900" <= example.iso[:4] <= "2099"
    texts = "".join(example.text for made in splits.values() for example in made)
    assert not _SPACES.search(texts) and not _MARKS.search(texts)
    assert "\u0307" not in texts  # a careless lower() leaves it behind in Turkish
    assert max(len(example.text) for example in splits["train"]) <= 40


def test_variety(splits):
    made = splits["train"]
    english = [example.text for example in made if example.locale == "en"]
    assert 0.08 < sum(text == text.lower() for text in english) / len(english) < 0.17
    persian = [example.text for example in made if example.locale == "fa"]
    assert 0.4 < sum(bool(re.search("[۰-۹]", text)) for text in persian) / len(persian) < 0.6


def test_this_very_data(splits):
    """Results are only comparable while the data stays; a change of Babel that alters it should be seen."""
    assert dates.examples("test", seed=0) == splits["test"] != dates.examples("test", seed=5)
    assert [(example.locale, example.text, example.iso) for example in splits["test"][:3]] == [
        ("ko", "2065년 6월 6일", "2065-06-06"),
        ("hi", "शुक्रवार, ३० जुलाई १९७६", "1976-07-30"),
        ("sr", "субота, 5. август 1905.", "1905-08-05"),
    ]


def test_in_every_script():
    day = dates.days("test")[0]
    texts = dates.in_every_script(day)
    assert set(texts) == set(dates.SCRIPTS)
    words = {"Latin": "LATIN", "Cyrillic": "CYRILLIC", "Greek": "GREEK", "Hebrew": "HEBREW", "Arabic": "ARABIC"}
    for script, word in words.items():
        letters = [c for c in texts[script] if c.isalpha()]
        assert letters and all(unicodedata.name(c).startswith(word) for c in letters)
    assert set(dates.in_every_script(day, ("Greek", "Hangul"))) == {"Greek", "Hangul"}
    for month in range(1, 13):
        assert len(dates.in_every_script(date(1961, month, 13))) == 11


def test_spec():
    data = load_data("dates", seed=3)
    assert (data.spec, data.task, data.tokenizer, data.shared_vocabulary) == ("dates", "seq2seq", "chars", False)
    pairs = data.split("val")
    assert pairs is data.split("val")
    assert len(pairs) == len(pairs.source) == len(pairs.target) == 1_000
    assert pairs.target == [example.iso for example in dates.examples("val", seed=3)]


ERRORS = (
    (lambda: dates.render(date(1961, 5, 3), "xx"), "locale 'xx'"),
    (lambda: dates.render(date(1961, 5, 3), "en", "lnog"), "'lnog'.*long"),
    (lambda: dates.render(date(1961, 5, 3), "en", digits="arab"), "'en' 'arab'"),
    (lambda: dates.render(date(1961, 10, 3), "hr"), "10 in 'hr'"),
    (lambda: dates.in_every_script(date(1961, 5, 3), ("Gerek",)), "'Gerek'.*Greek"),
    (lambda: dates.days("tests"), "'tests'.*test"),
    (lambda: dates.examples("dev"), "'dev'"),
    (lambda: load_data("dates:en"), "'dates'.*Received: 'dates:en'"),
)


def test_errors(subtests):
    for call, message in ERRORS:
        with subtests.test(message), pytest.raises(InputError, match=message):
            call()
