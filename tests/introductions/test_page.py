"""Every row of the page has its test, and is short."""

import ast
from pathlib import Path

import pytest
from introductions.conftest import rows


def test_every_row_has_a_test():
    tested = {
        node.name.removeprefix("test_")
        for path in Path(__file__).parent.glob("test_*.py")
        if path != Path(__file__)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    assert tested == set(rows())


@pytest.mark.parametrize("name", rows())
def test_a_row_takes_five_lines_at_most(name):
    assert 1 <= len(rows()[name][1].strip().splitlines()) <= 5
