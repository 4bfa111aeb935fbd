"""The page for Keras users, block by block; `.ci/run` has it on all backends."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.nightly  # the site runs it, too
def test_every_block_runs(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    monkeypatch.chdir(tmp_path)
    from generate import notebooks

    notebooks.run_examples(ROOT / "docs" / "elsewhere" / "keras.md")
    assert not list(tmp_path.iterdir())  # what the page saves is in a folder that is gone
    sys.modules.pop("generate.notebooks")
