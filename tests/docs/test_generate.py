"""The parts that the site is made of: notebooks as text, links between documents, and what fails a build."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def generate():
    """Makes `generate` importable, as it is for MkDocs."""
    sys.path.insert(0, str(ROOT / "docs"))
    yield
    sys.path.remove(str(ROOT / "docs"))


@pytest.fixture
def notebooks():
    return importlib.import_module("generate.notebooks")


@pytest.fixture
def repository():
    return importlib.import_module("generate.repository")


NOTEBOOK = "# %% [markdown]\n# # Title\n#\n# Text\n\n# %%\nx = 2\nprint(x)\nx + 1\n"


def test_a_notebook_becomes_a_page_unless_a_cell_fails(notebooks, tmp_path, capsys):
    path = tmp_path / "page.py"
    path.write_text(NOTEBOOK)
    notebooks.run(path, tmp_path)
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("# Title\n\nText\n") and "x = 2\nprint(x)\nx + 1\n" in page
    assert page.index("\n2\n") < page.index("\n3\n"), "what was printed, then the value of the last line"
    kinds = [cell["cell_type"] for cell in json.loads((tmp_path / "page.ipynb").read_text())["cells"]]
    assert kinds == ["markdown", "code"]
    path = tmp_path / "broken.py"
    path.write_text("# %%\nx = 1\n\n# %%\nx / 0\n")
    with pytest.raises(SystemExit, match=r"broken.py fails in cell 1:\nx / 0"):
        notebooks.run(path, tmp_path)
    assert "ZeroDivisionError" in capsys.readouterr().err and not (tmp_path / "broken.md").exists()


def test_examples_of_pages_are_run(notebooks, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = 1\n```\n\n<!-- not run: no y -->\n```python\ny\n```\n\n```python\nassert x == 2\n```\n"
    )
    with pytest.raises(SystemExit, match=r"An example of .*page.md fails:\nassert x == 2\n"):
        notebooks.run_examples(page)
    assert "AssertionError" in capsys.readouterr().err


def test_links_become_links_between_pages(repository):
    sources = {}
    text = "[a](../../zoo/layers/README.md#x) [b](../../zoo/errors.py) [c](https://x.org) [d](#e)\n```\n[f](g.md)\n```"
    linked = repository.relink(text, "docs/do/page.md", "do/page.md", sources)
    expected = "[a](../layers.md#x) [b](../source/zoo/errors.py.md) [c](https://x.org) [d](#e)\n```\n[f](g.md)\n```"
    assert linked == expected and sources == {"zoo/errors.py": "source/zoo/errors.py.md"}


def test_blocks_are_included_once(repository):
    page = (ROOT / "docs" / "do" / "new-parts.md").read_text("utf-8")
    included = repository.include(page)
    assert "<!--" not in included and "class AveragingClassifier(ClassifierModel):" in included
    with pytest.raises(ValueError, match="'# nothing.py'"):
        repository.include("<!-- include CONTRIBUTING.md # nothing.py -->")


def test_a_site_with_broken_links_has_problems(tmp_path):
    links = importlib.import_module("generate.links")
    (tmp_path / "a.html").write_text(
        '<h1 id="x">A</h1><a href="b.html#y">b</a><a href="c.html">c</a><a href="#x">x</a>'
    )
    (tmp_path / "b.html").write_text('<script src="https://cdn.example/x.js"></script><a href="a.html#x">a</a>')
    assert links.problems(tmp_path) == [
        "a.html links to b.html#y, a place that is not on that page.",
        "a.html links to c.html, which does not exist.",
        "b.html fetches https://cdn.example/x.js.",
    ]


def test_pages_of_models_have_what_was_measured():
    measured = importlib.import_module("generate.models").read_results()
    assert {"rnnsearch", "transformer_tiny", "cnn_classifier", "causal_lm_tiny"} <= {*measured}
    for name, tables in measured.items():
        assert f"| `{name}` |" in "".join(tables) and "](../../lab-notes/2026-" in "".join(tables)


def test_every_command_is_found_with_its_parser_and_what_it_does_not_describe():
    commands = importlib.import_module("generate.commands")
    names = commands.names()
    assert {"training.train", "training.evaluate", "export.saved_model", "export.serve", "export.client"} <= {*names}
    parser = commands.parser_of("training.evaluate")
    assert "--beam_size" in commands._page(
        "training.evaluate", parser, "", importlib.import_module("generate.problems").Problems()
    )
    import argparse

    commands, problems = importlib.import_module("generate.commands"), importlib.import_module("generate.problems")
    parser, found = argparse.ArgumentParser(add_help=False), problems.Problems()
    parser.add_argument("--silent")
    commands._page("it", parser, "", found)
    assert found == ["--silent of python -m it has no help: give add_argument one."]
    with pytest.raises(SystemExit, match="--silent of python -m it"):
        found.end()
