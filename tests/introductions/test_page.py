"""Every row of the page has its check, is short, needs nothing but its openings, and claims what it shows."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from introductions.page import PAGE, binds, claims, numbers, openings, parts, reads, rows, stands_in
from support.every import every


def test_every_row_has_a_check():
    tested = {
        node.name.removeprefix("row_")
        for path in Path(__file__).parent.glob("test_*.py")
        if path != Path(__file__)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("row_")
    }
    assert tested == set(rows())


def test_every_row_of_the_courses_is_here():
    assert [row.number for row in rows().values()] == list(range(1, len(rows()) + 1))
    assert len(rows()) >= 92  # the rows that were collected from five courses
    assert len(re.findall("^#### ", PAGE.read_text(encoding="utf-8"), re.M)) == len(rows())


WORDS = """
    additive alignment annotation ALiBi attention Bahdanau "bag of words" BiLSTM bidirectional bilinear "causal mask"
    complexity concatenat "context vector" contextual convolution cosine cross-attention diagram dot-product EncOut
    encoder-decoder embedding "fixed length" "four terms" frequency gradient head heatmap "hidden state"
    "layer normalization" learned "long sentences" Luong masked multi-head multiplicative "output projection"
    parallel path positional query quadratic relative residual rotary saturat scaled self-attention sentiment seq2seq
    Shaw sinusoid softmax static Sutskever translation Vaswani variance vanish
    "attention map" "attention weights" beam BERT dictionary "global attention" GPT greed "hard attention" key-value
    "local attention" lookup "soft attention" "teacher forcing" visualiz "weight matri" "word embedding"
"""


def test_the_words_of_the_courses_are_found():
    page = PAGE.read_text(encoding="utf-8").lower().replace("\n", " ")
    assert [word for word in shlex.split(WORDS) if word.lower() not in page] == []
    assert "symbol" not in page, "courses say tokens"


def test_a_row_takes_five_lines_at_most():
    counts = {part.title: len(list(filter(None, part.code.splitlines()))) for part in parts() if part.code}
    most = {part.title: 5 if part.number else 8 for part in parts()} | {parts()[0].title: 13}
    assert {title: count for title, count in counts.items() if count > most[title]} == {}


def test_blocks_need_the_openings_alone():
    """What a block reads it binds itself, or an opening does; and what openings bind no row changes."""
    with every() as failures:
        for part in parts():
            before = [each for each in openings(part) if each is not part] if part is not parts()[0] else []
            given = {name: each.title for each in before for name in binds(each.code)}
            if part.language == "python":
                with failures.of(part.title):
                    unknown = reads(part.code) - set(given)
                    assert not unknown, f"nothing before it binds {', '.join(sorted(unknown))}"
                    changed = binds(part.code) & set(given)
                    assert not changed, f"it changes {', '.join(sorted(changed))} of an opening"


def test_what_is_read_and_bound_is_found():
    code = "for a in b:\n    c = [d * e for d in a if f]\n"
    code += "def g(h): return h + i\nj, k = (lambda m: m + n)(c), c\nk += o"
    assert reads(code) == {"b", "e", "f", "i", "n", "o"} and binds(code) == {"a", "c", "g", "j", "k"}
    assert reads("p = [p for p in p]") == reads("p += 1") == {"p"}
    assert binds("import q.r, s as t\nfrom u import v as w") == {"q", "t", "w"}
    assert reads("while x:\n    x = len(y)") == {"x", "y"} and reads("class Z:\n    def a(self): return b") == {"b"}


@pytest.mark.nightly
def test_the_page_runs_from_top_to_bottom(page):
    with every() as failures:
        for part, ran in page.items():
            with failures.of(part.title):
                assert ran.error is None, ran.error
    assert {part.title for part in page} == {part.title for part in parts() if part.language == "python"}


@pytest.mark.nightly
def test_the_numbers_of_a_text_are_in_its_block_or_printed_by_it(page):
    """Those of a command are in the part of a document, such as a table of measurements, to which the text leads."""
    with every() as failures:
        for part in parts()[1:]:
            shown = [part.code, *(each.code for each in openings(part)[1:])]
            shown += [page[part].printed] if part in page else _documents(part.text)
            with failures.of(part.title):
                missing = [claim for claim in claims(part.text) if not any(stands_in(claim, each) for each in shown)]
                assert not missing, f"nothing shows {', '.join(missing)}"


def _documents(text):
    """Returns what a text links to: a document, or the section of it that the link names."""
    found = []
    for path, anchor in re.findall(r"\]\(([\w./-]+)(?:#([\w-]+))?\)", text):
        document = (PAGE.parent / path).read_text(encoding="utf-8")
        for heading, body in re.findall(r"^#+ (.+?)$(.*?)(?=^#+ |\Z)", document, re.M | re.S):
            if not anchor or re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-")) == anchor:
                found.append(body)
    assert found or "](" not in text, "the section that it links to is not there"
    return found


def test_what_counts_as_a_claim():
    text = (
        "3·n² = 75, 1/√d_k, α (1 − α), T5, x_1, 10^{2j/d}, P[2j+1], Cho 2014, `x=7`, [9](10.md); ten, .96, 8e-22, 2 ms"
    )
    assert claims(text) == ["75", "10", ".96", "8e-22", "2"]
    assert claims("1,310,720, about 1.3 million, and [1, 8, 5, 5]") == ["1,310,720", "1.3 million", "1", "8", "5", "5"]
    assert claims("d_k = 64, between 0 and 1: ∈ 512 × 64") == ["64", "0", "1", "512", "64"]
    for claim, shown in ((".96", "0.9561"), ("1.3 million", "1310720"), ("6.5e-2", "0.0651"), ("1,600", "1_600")):
        assert stands_in(claim, shown) and not stands_in(claim, f"{numbers(shown)[0] * 1.1}")
    assert not stands_in("97", "0.97") and not stands_in("1", "12 10")
