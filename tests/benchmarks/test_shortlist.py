"""What a shortlist gains."""

import pytest

from benchmarks.shortlist import main


@pytest.mark.nightly
def test_it_prints_a_table(capsys):
    assert main(["--tiny", "--rounds", "1"]) == 0
    *_, greedy, beam = capsys.readouterr().out.splitlines()
    assert greedy.startswith("| `student_tiny` | 60 | greedy | ") and beam.startswith(
        "| `student_tiny` | 60 | beam 5 | "
    )
