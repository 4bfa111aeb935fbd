"""The table of conformance in the repository is the one that its command makes, and the README shows the same."""

import importlib.metadata
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


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="the command runs on TensorFlow")
@pytest.mark.filterwarnings("ignore")  # Keras' of what its own layers do to masks
@pytest.mark.parametrize(
    "layers", [pytest.param("zoo.*", marks=pytest.mark.nightly), pytest.param("*", marks=pytest.mark.weekly)]
)
def test_the_table_is_what_the_command_makes(layers, tmp_path):
    kept = RESULTS.read_text(encoding="utf-8")
    if layers == "*" and f"Keras {importlib.metadata.version('keras')}," not in kept:
        pytest.skip("the table is of another version of Keras")
    results, missing = report.run(layers)
    (tmp_path / "RESULTS.md").write_text(report.markdown(results, missing), encoding="utf-8")
    found, expected = _cells(tmp_path / "RESULTS.md"), _cells(RESULTS)
    columns = {layer for _, layer in found}
    assert found == {place: cell for place, cell in expected.items() if place[1] in columns}
    of_interest = {layer for _, layer in expected if layers == "*" or layer.startswith("zoo ")}
    assert columns == of_interest or (missing and columns < of_interest)
    ours = {place: cell for place, cell in found.items() if place[1].startswith("zoo ")}
    assert ours and "**fail**" not in ours.values()
