"""The table of conformance in the repository is the one that its command makes, and the README shows the same."""

import importlib.metadata
import warnings
from pathlib import Path

import keras
import pytest

from benchmarks.conformance import report

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "benchmarks" / "conformance" / "RESULTS.md"
SIGNS = {"pass": "✓", "**fail**": "✗"}


def _cells(path):
    """Returns the cells of the tables of checks, by name of the check and of the layer."""
    cells, names = {}, None
    for line in path.read_text(encoding="utf-8").splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if len(row) > 2 and row[1] == "item":
            names = row[2:]
        elif names and len(row) == len(names) + 2:
            cells |= {(row[0], name): cell for name, cell in zip(names, row[2:], strict=True)}
        else:
            names = None
    return {place: cell for place, cell in cells.items() if not set(cell) <= {"-"}}


def test_the_readme_shows_the_table():
    expected = {place: SIGNS.get(cell, cell) for place, cell in _cells(RESULTS).items()}
    assert expected and _cells(ROOT / "zoo" / "layers" / "README.md") == expected


@pytest.mark.nightly
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the command runs on TensorFlow")
def test_the_table_is_what_the_command_makes(tmp_path):
    kept = RESULTS.read_text(encoding="utf-8")
    if f"Keras {importlib.metadata.version('keras')}," not in kept:
        pytest.skip("the table is of another version of Keras")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras' of what its own layers do to masks
        results, missing = report.run()
    (tmp_path / "RESULTS.md").write_text(report.markdown(results, missing), encoding="utf-8")
    found, expected = _cells(tmp_path / "RESULTS.md"), _cells(RESULTS)
    layers = {layer for _, layer in found}
    assert found == {place: cell for place, cell in expected.items() if place[1] in layers}
    assert missing or len(layers) == len({layer for _, layer in expected})
