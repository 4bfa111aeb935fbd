"""Every row of the page has its test, and is short."""

import ast
import shlex
from pathlib import Path

import pytest
from introductions.conftest import PAGE, rows


def test_every_row_has_a_test():
    tested = {
        node.name.removeprefix("test_")
        for path in Path(__file__).parent.glob("test_*.py")
        if path != Path(__file__)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert tested == set(rows())


WORDS = """
    additive alignment annotation ALiBi attention Bahdanau "bag of words" BiLSTM bidirectional bilinear "causal mask"
    complexity concatenat "context vector" contextual convolution cosine cross-attention diagram dot-product EncOut
    encoder-decoder embedding "fixed length" "four terms" frequency gradient head heatmap "hidden state"
    "layer normalization" learned "long sentences" Luong masked multi-head multiplicative "output projection"
    parallel path positional query quadratic relative residual rotary saturat scaled self-attention sentiment seq2seq
    Shaw sinusoid softmax static Sutskever translation Vaswani variance vanish
"""


@pytest.mark.parametrize("word", shlex.split(WORDS))
def test_a_word_of_the_courses_is_found(word):
    assert word.lower() in PAGE.read_text(encoding="utf-8").lower().replace("\n", " ")


@pytest.mark.parametrize("name", rows())
def test_a_row_takes_five_lines_at_most(name):
    assert 1 <= len(rows()[name][1].strip().splitlines()) <= 5
