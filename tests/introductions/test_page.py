"""Every row of the page has its check, and is short."""

import ast
import re
import shlex
from pathlib import Path

from introductions.conftest import PAGE, numbers, rows


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
    assert numbers() == list(range(1, len(rows()) + 1))
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


def test_a_row_takes_five_lines_at_most():
    counts = {name: len(list(filter(None, lines.splitlines()))) for name, (_, lines) in rows().items()}
    assert {name: count for name, count in counts.items() if not 1 <= count <= 5} == {}
