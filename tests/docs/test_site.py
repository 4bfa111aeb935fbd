"""The site in a browser: what a search finds, and pages that fit."""

import functools
import http.server
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.browser import until
from support.every import every

pytestmark = pytest.mark.nightly
pytest.importorskip("material", reason="the extra `docs` is not installed")

ROOT = Path(__file__).resolve().parents[2]
# What people ask, and the pages that answer it, one of which is among the first three.
QUESTIONS = {
    "own tokenizer": {"do/your-text"},
    "two GPUs": {"do/several-hosts", "scaling"},
    "attention of one sentence": {"look-up/python/runs", "do/ten-minutes"},
    "stock server in Docker": {"do/serve"},
    "limit memory": {"reliability", "scaling"},
    "fine-tune OPUS-MT": {"do/fine-tune"},
    "add a score": {"do/new-layer"},
    "what bfloat16 changes": {"do/one-gpu", "conformance"},
    "TensorBoard and W&B": {"do/your-text"},
    "class weights": {"do/your-text"},
    "early stopping": {"do/your-text"},
    "ONNX": {"checkpoints"},
}
WIDTHS = (390, 1300)
PAGES = """
    index introductions evidence/zoo look-up/layers/index look-up/layers/MultiHeadAttention look-up/commands/index
    look-up/commands/training.train look-up/models/transformer_base look-up/python/runs
    learn/3_queries_keys_values do/your-text
"""
# What sticks out of the page to the right, and is in nothing that scrolls.
STICKING_OUT = """() => [...document.querySelectorAll(".md-content *")].filter(each => {
    if (each.getBoundingClientRect().right <= innerWidth + 1) return false;
    for (let parent = each.parentElement; parent; parent = parent.parentElement)
        if (["auto", "scroll", "hidden"].includes(getComputedStyle(parent).overflowX)) return false;
    return true;
}).map(each => each.outerHTML.slice(0, 80))"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def site():
    """The address of the site, which is built first."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    handler = functools.partial(Quiet, directory=ROOT / "runs" / "site")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def found(page, question):
    """Returns the pages that a search finds, the first one first."""
    page.evaluate("document.querySelector('#__search').checked || document.querySelector('#__search').click()")
    page.fill("input.md-search__input", "")
    page.type("input.md-search__input", f"{question} ")
    until(page, "/[0-9]/.test(document.querySelector('.md-search-result__meta').textContent)", seconds=60)
    page.wait_for_timeout(1000)
    links = page.evaluate(
        "[...document.querySelectorAll('.md-search-result__item > a')].map(each => new URL(each.href).pathname)"
    )
    return list(dict.fromkeys(link.removeprefix("/").removesuffix(".html") for link in links))


def test_questions_find_their_pages(site, browser):
    with every() as failures:
        for question, expected in QUESTIONS.items():
            page = browser.new_page(viewport={"width": 1300, "height": 900})
            page.goto(f"{site}/index.html")
            with failures.of(question):
                first = found(page, question)[:3]
                assert expected & set(first), first
            page.close()


def test_pages_fit_and_can_be_read_in_the_dark(site, browser):
    with every() as failures:
        for width in WIDTHS:
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark")
            for name in PAGES.split():
                with failures.of(f"{name} at {width}"):
                    assert page.goto(f"{site}/{name}.html").ok
                    assert page.evaluate("document.documentElement.scrollWidth") == width
                    assert page.evaluate(STICKING_OUT) == []
                    assert page.evaluate("document.body.dataset.mdColorScheme") == "slate"
            page.close()


def test_a_page_that_is_a_file_has_search_and_colours(site, browser):
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto((ROOT / "runs" / "site" / "index.html").as_uri())
    page.click("label[title=Dark]")
    until(page, "document.body.dataset.mdColorScheme === 'slate'")
    assert any(name.endswith("do/your-text") for name in found(page, "early stopping")[:3]) and wrong == []
