"""Attention heatmaps: what is drawn, and that every script of the dates has its glyphs."""

import logging
import resource
import warnings

import numpy as np
import pytest
from PIL import Image
from support.tiers import nightly_unless

from export import heatmap
from export.heatmap import attention_heatmap
from zoo.errors import InputError

SCRIPTS = {
    "Latin": "mercoledì 14 juillet ñßčőđşżı",
    "Cyrillic": "среда, 3 серпня љ 2024 р.",
    "Greek": "Πέμπτη 5 Ιουλίου 1821",
    "Hebrew": "יום שני, 14 במאי 1948",
    "Arabic": "الجمعة، ٢٦ يناير ٢٠٢٤",
    "Persian": "پنج\u200cشنبه ۱۴ ژوئیهٔ ۱۷۸۹",
    "Armenian": "2024 թ. հուլիսի 14, կիրակի",
    "Georgian": "14 ივლისი, 2024",
    "Devanagari": "शुक्रवार, १५ अगस्त 1947 फ़रवरी",
    "Han": "二〇二四年十一月三十日 星期六 臺灣",
    "Kana": "2024年1月1日 げつようび カレンダー",
    "Hangul": "2024년 8월 15일 목요일 오후",
}
PIECES = [
    "▁Mann",
    "▁мужчина",
    "▁ישראל",
    "▁الجمعة",
    "عة",
    "▁फ़रवरी",
    "ी",
    "्र",
    "▁東京",
    "▁サッカー",
    "▁대한민국",
    "▁հուլիսի",
    "▁ივლისი",
]
ODD = [
    "\u200f",
    "\u202f",
    "\u0e01",
    "\u0301",
    "a\u0301",
    "$x^2$",
    "$",
    "\\frac",
    "😀",
    "\U0001d518",
    " ",
    "\t",
    "\n",
    "</s>",
]


def weights(rows, columns):
    """Returns random attention [2 layers, 3 heads, T, S]."""
    values = np.random.default_rng(0).random((2, 3, rows, columns))
    return values / values.sum(-1, keepdims=True)


@pytest.fixture
def no_warnings(caplog):
    """Fails on a warning, which matplotlib gives for a missing glyph, and on a log line, for a missing font."""
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        yield
    assert not caplog.records


@pytest.mark.nightly
@pytest.mark.usefixtures("no_warnings")
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_of_the_dates_has_its_glyphs(name, tmp_path):
    text, path = SCRIPTS[name], tmp_path / "map.png"
    target = [*"2024-08-15", "</s>", ""]
    attention_heatmap([*text, "</s>"], target, weights(12, len(text) + 1), path, title=f"{text}\n2024-08-15")
    with Image.open(path) as image:
        assert min(image.size) > 300
    assert heatmap._running_text(text) == text, "no code point stands for a missing glyph"


@pytest.mark.usefixtures("no_warnings")
@pytest.mark.parametrize("suffix", nightly_unless("svg".__eq__, ["png", "svg", "pdf"]))
def test_subword_pieces_and_odd_tokens(suffix, tmp_path):
    tokens = PIECES + ODD
    attention_heatmap(tokens, tokens, weights(len(tokens), len(tokens)), tmp_path / f"map.{suffix}", title="$a_b$ \t ☃")
    assert [path.name for path in tmp_path.iterdir()] == [f"map.{suffix}"]


LABELS = [
    ("a", "a"),
    (" ", "␣"),
    ("▁New York", "▁New␣York"),
    ("\u0301", "◌\u0301"),
    ("ी", "◌ी"),
    ("a\u0301", "a\u0301"),
    ("\u200f", "[200F]"),
    ("\u00a0", "[00A0]"),
    ("▁پنج\u200cشنبه", "▁پنج\u200cشنبه"),
    ("a\u202fb", "a␣b"),
    ("\t", "[0009]"),
    ("ก", "[0E01]"),
]


def test_labels():
    assert [(token, heatmap._label(token)) for token, _ in LABELS] == LABELS


def test_a_label_is_set_in_the_font_that_has_it():
    assert heatmap._families("फ़रवरी")[0] == "Shobhika"
    assert heatmap._families("東京")[0] == "Noto Sans CJK JP"
    assert heatmap._families("Mann")[0] == "DejaVu Sans"


def test_only_wide_labels_are_turned():
    assert heatmap._rotations(["a", "◌ी", "a\u0301", "</s>"]) == [0, 0, 0, 90]
    assert heatmap._rotations(["▁ein", "▁Mann", "."]) == [90, 90, 90]


def drawn(monkeypatch, *args, **kwargs):
    """Returns source labels, target labels and the weights that a call draws."""
    calls = []
    monkeypatch.setattr(heatmap, "_draw", lambda *drawing: calls.append(drawing))
    monkeypatch.setattr(heatmap, "_write", lambda figure, path: None)
    attention_heatmap(*args, "map.png", **kwargs)
    return calls[0][:3]


def test_padding_is_left_out_and_heads_are_averaged(monkeypatch):
    attention = weights(3, 4)
    sources, targets, values = drawn(monkeypatch, ["a", "b", "</s>", ""], ["x", "</s>", ""], attention)
    assert (sources, targets) == (["a", "b", "</s>"], ["x", "</s>"])
    np.testing.assert_allclose(values, attention[1].mean(0)[:2, :3], rtol=1e-6)


def test_layer_and_head_can_be_chosen(monkeypatch):
    attention = weights(1, 2)
    _, _, values = drawn(monkeypatch, ["a", "b"], ["x"], attention, layer=0, head=2)
    np.testing.assert_allclose(values, attention[0, 2], rtol=1e-6)
    _, _, values = drawn(monkeypatch, ["a", "b"], ["x"], attention[0, 1])
    np.testing.assert_allclose(values, attention[0, 1], rtol=1e-6)


def test_heads_without_layers(monkeypatch):
    attention = weights(3, 2)[0]
    tokens = ["a", "b"], ["x", "y", "z"]
    for head, expected in (
        ("mean", attention.mean(0)),
        (None, attention.mean(0)),
        (1, attention[1]),
        ("all", attention),
    ):
        _, _, values = drawn(monkeypatch, *tokens, attention, head=head)
        np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.usefixtures("no_warnings")
def test_all_heads_in_one_picture():
    figure = heatmap._draw(["a", "b"], ["x"], weights(1, 2)[0], "a title", ("attended to", "attending"))
    panels = [axes for axes in figure.axes if axes.get_images()]
    assert [axes.get_title() for axes in panels] == ["head 0", "head 1", "head 2"]
    assert {(axes.get_xlabel(), axes.get_ylabel()) for axes in panels} == {("attended to", "attending")}
    assert len({axes.get_images()[0].get_clim() for axes in panels}) == 1, "colours mean the same in each"


ERRORS = [
    (["a"], ["x"], (2, 1), {}, "1 × 1.*2 × 1"),
    (["a"], ["x"], (1,), {}, r"\[T, S\].*\(1,\)"),
    (["a"], ["x"], (3, 1, 1), {"head": 3}, "1 layers and 3 heads.*layer=-1, head=3"),
    (["a"], ["x"], (3, 1, 1), {"head": "some"}, "head=some"),
    (["a"], ["x"], (2, 3, 1, 1), {"layer": 2}, "2 layers and 3 heads.*layer=2, head=None"),
    (["a"], ["x"], (2, 3, 1, 1), {"head": 3}, "layer=-1, head=3"),
    ([""], ["x"], (1, 1), {}, "no tokens"),
    ([], ["x"], (1, 0), {}, "no tokens"),
]


def test_errors(tmp_path):
    for source, target, shape, options, words in ERRORS:
        with pytest.raises(InputError, match=words):
            attention_heatmap(source, target, np.zeros(shape), tmp_path / "map.png", **options)
    file = tmp_path / "file"
    file.touch()
    for path, words in (
        (file / "map.png", "cannot be written"),
        (tmp_path / "map", "suffix among .*png.*map"),
        (tmp_path / "map.pgf", "suffix among .*map.pgf"),  # needs TeX
    ):
        with pytest.raises(InputError, match=words):
            attention_heatmap(["a"], ["b"], np.ones((1, 1)), path)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("suffix", nightly_unless("pdf".__eq__, ["png", "pdf"]))
def test_a_full_disk(tmp_path, suffix):
    """The writers of some formats would raise something else."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            attention_heatmap(["a"] * 9, ["b"] * 9, np.ones((9, 9)), tmp_path / f"map.{suffix}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == f"{tmp_path}/map.{suffix}"
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
def test_a_long_sequence_stays_within_bounds(tmp_path):
    path = tmp_path / "map.png"
    attention_heatmap(["x"] * 257, ["y"] * 5, np.full((5, 257), 1 / 257), path)
    with Image.open(path) as image:
        assert image.width <= 45 * 150
