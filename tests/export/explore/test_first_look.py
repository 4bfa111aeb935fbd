"""What the page shows before anybody touches it, and what invites to: lines, a caption, pictures of heads, a link."""

import numpy as np
import pytest
from support.browser import until
from support.explorer_models import translation
from support.explorer_pages import asked, columns, rows, shaded

from zoo.explorer import AnswerView, Attention, Page, View

pytestmark = pytest.mark.nightly
QUIET = {"reduced_motion": "reduce"}
INKED = """() => {
    const { width, height } = document.querySelector('.strips canvas');
    const { data } = document.querySelector('.strips canvas').getContext('2d').getImageData(0, 0, width, height);
    return data.filter((value, index) => index % 4 === 3 && value > 0).length;
}"""


def names(side, count):
    return [f"{side}{number}" for number in range(count)]


@pytest.mark.parametrize("width", [1300, 390])
@pytest.mark.parametrize(("read", "written"), [(5, 61), (61, 5), (7, 11)])
def test_pictures_of_heads_lie_within_their_buttons(open_page, file_of, width, read, written):
    view = translation(names("s", read), names("t", written), layers=2, heads=3)
    page = open_page(file_of(view), viewport={"width": width, "height": 900}, **QUIET)
    until(page, "document.querySelectorAll('.small canvas').length == 6")
    boxes = page.evaluate("""() => [...document.querySelectorAll('.small canvas')].map((canvas) => {
        const [inner, outer] = [canvas, canvas.closest('button')].map((element) => element.getBoundingClientRect());
        return [canvas.width, canvas.height, inner.top - outer.top, outer.bottom - inner.bottom,
                inner.left - outer.left, outer.right - inner.right, inner.width, inner.height];
    })""")
    for across, down, *margins, shown_width, shown_height in boxes:
        assert (across, down) == (read, written) and min(margins) >= 0 and min(shown_width, shown_height) > 30
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_lines_are_there_without_a_pointer_and_their_caption_says_the_weight(open_page, file_of):
    view = translation(names("s", 7), names("t", 5), layers=2, heads=3)
    page = open_page(file_of(view), **QUIET)
    weights = View.from_json(view.to_json()).answers[0].attention["cross"].layers[-1].mean(axis=0)[0]
    assert page.evaluate(INKED) > 100
    caption = page.inner_text(".caption")
    assert caption.startswith(f"t0 attended {100 * weights.max():.0f} % to s{weights.argmax()}")
    assert caption.endswith("(layer 2, mean of 3 heads)") and page.url.endswith("layer=1&head=mean")
    assert int(np.argmax(shaded(columns(page)))) == weights.argmax()
    columns(page).nth(3).hover()
    assert page.inner_text(".caption").startswith("s3 was attended to by t")


def test_a_tour_goes_through_the_first_tokens_until_somebody_touches_the_page(open_page, file_of):
    url = file_of(translation(names("s", 7), names("t", 5)))

    def seen(address, touch=lambda page: None, **options):
        """Returns which token the caption is about: at first, and later by the page's clock."""
        page = open_page(address, **options)
        page.clock.install(time=0)
        page.clock.pause_at(1)  # else it goes on by itself while a busy machine is slow
        page.reload()
        tokens = [page.inner_text(".caption")[:2]]
        for seconds in (1, 1, 4):
            page.clock.run_for(1000 * seconds)
            tokens.append(page.inner_text(".caption")[:2])
            touch(page)
        return tokens

    assert seen(url) == ["t0", "t1", "t2", "t0"]
    assert seen(url, lambda page: page.keyboard.press("Shift")) == ["t0", "t1", "t1", "t1"]
    assert seen(url, lambda page: page.mouse.move(1, 1)) == ["t0", "t1", "t1", "t1"]
    assert seen(url, **QUIET) == ["t0"] * 4
    assert seen(f"{url}#token=rows:3") == ["t3"] * 4


def test_a_head_is_previewed_under_the_pointer(explorer, open_page):
    page = asked(explorer, open_page, **QUIET)
    until(page, "document.querySelectorAll('.small canvas').length == 6")
    before, address, lines = page.inner_text(".caption"), page.url, page.evaluate(INKED)
    page.locator(".small").nth(0).hover()
    assert "(layer 1, head 1)" in page.inner_text(".caption") and page.evaluate(INKED) != lines
    page.mouse.move(0, 0)
    assert page.inner_text(".caption") == before and page.url == address
    page.locator(".small").nth(0).click()
    page.mouse.move(0, 0)
    assert "(layer 1, head 1)" in page.inner_text(".caption") and "head=0" in page.url


@pytest.mark.parametrize(
    ("layers", "heads", "choices"),
    [(1, 1, []), (1, 2, ["Head"]), (2, 1, ["Layer"]), (2, 2, ["Layer", "Head", "Order by"])],
)
def test_nothing_is_asked_where_there_is_no_choice(open_page, file_of, layers, heads, choices):
    page = open_page(file_of(translation(["a"], ["b", "c"], layers, heads)))
    selects = page.evaluate(
        "[...document.querySelectorAll('.panel select')].filter(each => each.offsetParent !== null)"
        ".map(each => each.parentElement.firstChild.textContent.trim())"
    )
    assert selects == choices
    assert page.locator(".small").filter(visible=True).count() == (layers * heads if choices else 0)


def test_what_heads_do_is_told_from_their_weights(open_page, file_of):
    tokens = ["<s>", "a", "b", "c", ",", "d", "e", "."]
    even, same = np.full((8, 8), 1 / 8, "float32"), np.eye(8, dtype="float32")
    first, separator = np.eye(8, dtype="float32")[[0] * 8], np.eye(8, dtype="float32")[[4, 7] * 4]
    two = (same + first) / 2 * 0.8 + even * 0.2  # neither has half
    heads = [same, np.roll(same, -1, 1), np.roll(same, 1, 1), first, separator, even, two - 0.01]
    view = View("classifier", "m", "t", tokens, {"encoder": Attention([np.stack(heads)])}, classes=[("a", 1.0)])
    page = open_page(file_of(view))
    until(page, "document.querySelectorAll('.small canvas').length == 7")
    marks = page.evaluate("[...document.querySelectorAll('.role')].map((mark) => mark.textContent)")
    assert marks == ["same", "previous", "next", "first", "separator", "spread", ""]
    assert page.get_by_role("radio", name="layer 1, head 4, first").count() == 1
    page.get_by_label("Order by").select_option("role")
    assert page.evaluate(
        "[...document.querySelectorAll('.grid > *')].map((part) => part.textContent.split(':')[0])"
    ) == [
        *["same", "same1 · 1", "previous", "previous1 · 2", "next", "next1 · 3", "first", "first1 · 4"],
        *["separator", "separator1 · 5", "spread", "spread1 · 6", "no clear role", "1 · 7"],
    ]
    page.get_by_role("radio", name="head 3").click()
    page.keyboard.press("ArrowDown")
    assert "head=3" in page.url
    page.get_by_label("Order by").select_option("place")
    assert page.locator(".grid > .group").count() == 0 and page.locator(".grid > .label").count() == 9


def test_the_head_that_does_it_most_clearly_comes_first(open_page, file_of):
    same, even = np.eye(5, dtype="float32"), np.full((5, 5), 0.2, "float32")
    heads = [part * same + (1 - part) * even for part in (0.6, 0.9, 0.7, 0.8)]
    view = View("classifier", "m", "t", [*"abcde"], {"encoder": Attention([np.stack(heads)])}, classes=[("a", 1.0)])
    page = open_page(file_of(view))
    until(page, "document.querySelectorAll('.small canvas').length == 4")
    page.get_by_label("Order by").select_option("role")
    shown = page.evaluate("[...document.querySelectorAll('.grid .place')].map((place) => place.textContent)")
    assert shown == ["1 · 2", "1 · 4", "1 · 3", "1 · 1"]


def test_what_heads_do_to_what_was_written(open_page, file_of):
    source, target = names("s", 11), names("t", 11)
    kinds = {"cross": Attention([np.eye(11, dtype="float32")[None]] * 2)}
    kinds["decoder"] = Attention([np.eye(11, dtype="float32")[None]] * 2)
    answer = AnswerView("t", -1.0, None, target, ["<s>", *target[:-1]], attention=kinds)
    page = open_page(file_of(View("seq2seq", "m", "t", source, answers=[answer])))
    for kind, role in (("cross", "in order"), ("decoder", "previous")):
        page.get_by_role("radio", name="answer to the text" if kind == "cross" else "(decoder)").check()
        until(page, "document.querySelectorAll('.small canvas').length == 2")
        assert page.locator(".role").all_inner_texts() == [role] * 2


@pytest.mark.parametrize(
    ("tokens", "texts", "joined"),
    [
        (["▁ein", "em", "▁Hu", "nd", ".", "</s>"], ["ein", "em", "Hu", "nd", ".", "</s>"], [1, 3]),
        (["[CLS]", "em", "##bed", "##s", "[SEP]"], ["[CLS]", "em", "##bed", "##s", "[SEP]"], [2, 3]),
        (["un@@", "kind", "word"], ["un@@", "kind", "word"], [1]),
        (["<0xE2>", "<0x82>", "a", "▁", "b"], ["E2", "82", "a", "␣", "b"], [1]),
        (["▁一九", "八九"], ["一九", "八九"], []),
        (["ein", "Hund"], ["ein", "Hund"], []),
    ],
)
def test_pieces_of_a_word_stand_together(open_page, file_of, tokens, texts, joined):
    page = open_page(file_of(translation(tokens, ["7"])))
    assert columns(page).all_inner_texts() == texts
    classes = columns(page).evaluate_all("all => all.map(token => token.classList.contains('joined'))")
    assert [index for index, each in enumerate(classes) if each] == joined
    assert columns(page).nth(0).get_attribute("title") == tokens[0]


def test_probabilities_that_percents_cannot_tell_apart(open_page, file_of):
    answers = [AnswerView(f"{log_prob}", log_prob, tokens=["a"], before=["b"]) for log_prob in (-2.5, -7.46, None)]
    page = open_page(file_of(View("seq2seq", "m", "t", ["a"], answers=answers)))
    assert page.locator(".answers .number").all_inner_texts() == ["8.2 %, log −2.5", "log −7.5", "–"]
    page = open_page(file_of(View("seq2seq", "m", "t", ["a"], answers=answers[::2])))
    assert page.locator(".answers .number").all_inner_texts() == ["8.2 %", "–"]


def test_a_link_is_copied_and_leads_back(explorer, open_page, file_of, tmp_path):
    page = asked(explorer, open_page, **QUIET)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("radio", name="layer 1, head 2").click()
    columns(page).nth(1).click()
    page.get_by_role("button", name="Copy link").click()
    until(page, "[...document.querySelectorAll('button')].some((button) => button.textContent === 'Copied')")
    link = page.evaluate("navigator.clipboard.readText()")
    other = open_page(link, **QUIET)
    other.wait_for_selector(".token")
    assert other.inner_text(".caption") == page.inner_text(".caption")
    assert columns(other).nth(1).get_attribute("aria-selected") == "true"
    views = Page([translation(["a"], ["b"])])
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><body>{views._repr_html_()}", encoding="utf-8")
    for place in (open_page(file_of(*views.views)), open_page(notebook.as_uri()).frame_locator("iframe")):
        assert place.get_by_role("button", name="Save JSON").is_visible()
        assert place.get_by_role("button", name="Copy link").count() == 0


def test_a_link_that_is_pasted_over_another_is_followed(open_page, file_of):
    page = open_page(file_of(translation(["a"], ["b", "c"], layers=2)), **QUIET)
    with page.expect_event("load"):
        page.evaluate("setTimeout(() => (location.hash = 'layer=0&token=rows:1'))")
    until(page, "document.querySelector('.caption')?.textContent.startsWith('c attended')")
    assert rows(page).nth(1).get_attribute("aria-selected") == "true" and "layer 1" in page.inner_text(".caption")
