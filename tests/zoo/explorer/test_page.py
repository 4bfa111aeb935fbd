"""The self-contained page: nothing from outside, nothing that a model says is markup, and its policy holds."""

import base64
import hashlib
import html
import json
import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from support.every import every

from zoo.errors import InputError
from zoo.explorer import AnswerView, Page, View
from zoo.explorer.page import ASSETS, INDEX, bundled_script

MOST_BYTES = 90_000  # of a page without its views
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]>",
    "\u2028\u2029\x00",
    "\ud800",  # half of a character
    "\"&quot;'",
]


class Elements(HTMLParser):
    """The elements of a page, and the text in each script and style."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.contents = [], [""]  # what is before the first element belongs to none
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.contents.append("")

    def handle_endtag(self, tag):
        self.elements.append((f"/{tag}", {}))
        self.contents.append("")

    def handle_data(self, data):
        self.contents[-1] += data

    def of(self, tag):
        return [
            (attributes, content)
            for (name, attributes), content in zip(self.elements, self.contents[1:], strict=True)
            if name == tag
        ]


def hostile_page():
    answers = [AnswerView(text, -1.0, None, HOSTILE, HOSTILE, [-1.0] * 7, [[(text, -1.0)]] * 7) for text in HOSTILE]
    views = [View("seq2seq", text, text, HOSTILE, answers=answers, notes=[text]) for text in HOSTILE]
    return Page([*views, View("classifier", "c", "c", HOSTILE, classes=[(text, 0.5) for text in HOSTILE])])


def test_what_models_say_stays_data():
    page = hostile_page()
    read = Elements(page.html())
    assert [tag for tag, _ in read.elements] == [
        tag for tag, _ in Elements(Page([View("classifier", "m", "t")]).html()).elements
    ]
    (_, data), (_, _) = read.of("script")
    assert json.loads(data) == [view.to_json() for view in page.views]
    assert "alert" not in page.html().replace(data, "")


def test_the_policy_allows_exactly_what_is_there():
    read = Elements(hostile_page().html())
    (policy,) = [meta["content"] for meta, _ in read.of("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))

    def hash_of(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    ((_, style),) = read.of("style")
    (_, script) = read.of("script")[1]
    assert directives["script-src"] == hash_of(script) and directives["style-src"] == hash_of(style)
    assert directives["default-src"] == "'none'" and "unsafe" not in policy


def test_nothing_comes_from_outside():
    text = Page([View("classifier", "m", "t")]).html()
    own = re.sub(r"http://www\.w3\.org/2000/svg", "", text)
    assert not re.search(r"https?:|//[\w-]+\.\w|@import|url\(|import\s*\(", own)
    assert not re.search(r'\b(?:src|href)="(?!data:)', text)
    assert not re.search(r"^(?:import|export)\b", bundled_script(), flags=re.MULTILINE)


def test_modules_make_no_markup_of_text():
    dangerous = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setTimeout\(['\"`]|javascript:"
    )
    paths = sorted(ASSETS.glob("*.js"))
    assert len(paths) > 9
    with every() as failures:
        for path in paths:
            source = path.read_text(encoding="utf-8")
            with failures.of(path.name):
                assert not re.search(dangerous, source)
                assert not re.search(r"\bimport\b[^;]*\bas\b", source), "one scope holds all modules: no other names"


def test_one_scope_can_hold_all_modules():
    names = re.findall(r"^(?:async )?(?:const|let|function|class) (\w+)", bundled_script(), flags=re.MULTILINE)
    lists = re.findall(r"^(?:const|let) \[([^\]]*)\]", bundled_script(), flags=re.MULTILINE)
    names += [name.strip() for group in lists for name in group.split(",")]
    assert len(names) > 40
    assert not [name for name, count in Counter(names).items() if count > 1]
    for path in ASSETS.glob("*.js"):
        assert path.read_text(encoding="utf-8").splitlines()[0] in bundled_script(), f"{path.name} is left out"


def test_a_page_is_small():
    size = len(Page([View("classifier", "m", "t")]).html().encode("utf-8"))
    assert size < MOST_BYTES, f"the page has {size:,} bytes without its views"


def test_a_page_is_the_served_one_with_its_parts_inside():
    served = (ASSETS / INDEX).read_text(encoding="utf-8")
    for mark in ("<!-- Content-Security-Policy -->", 'href="explorer.css"', 'href="inside.css"', 'src="main.js"'):
        assert served.count(mark) == 1 and mark not in Page([View("classifier", "m", "t")]).html()


def test_in_a_notebook_it_is_a_frame_that_reaches_nothing():
    page = hostile_page()
    ((frame, _),) = Elements(page._repr_html_()).of("iframe")
    assert frame["sandbox"] == "allow-scripts allow-downloads"
    assert frame["srcdoc"] == html.unescape(html.escape(page.html())) == page.html()


def test_saving(tmp_path):
    page = Page([View("classifier", "m", "t")])
    path = page.save(tmp_path / "deep" / "page.html")
    assert path.read_text(encoding="utf-8") == page.html()
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]
    with pytest.raises(InputError, match="page.html/inside.html"):
        page.save(path / "inside.html")


def test_without_views():
    with pytest.raises(InputError, match="none"):
        Page([])
