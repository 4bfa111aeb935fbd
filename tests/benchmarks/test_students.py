"""Students beside their teacher: contestants, the table, the plot."""

import pytest

from benchmarks import students
from benchmarks.students import CASE


def _result(seconds, bleu):
    return {"seconds": [seconds], "processor": [2 * seconds], "bleu": bleu, "versions": {"numpy": "2"}}


@pytest.fixture
def measurements():
    results = {
        "zoo, teacher, beam 5": _result(6.0, 42.0),
        "zoo, student with shortlist, greedy": _result(1.0, 41.75),
        "CTranslate2 int8, teacher, beam 5": _result(1.5, 42.0),
        "transformers, teacher, greedy": {"failed": "no torch"},
    }
    return {"where": "a machine", "results": results, "fastest": {}, "megabytes": 9.5, "sentences": 300}


def test_every_target_is_about_contestants():
    labels = [contestant.label for contestant in CASE.contestants]
    assert len(set(labels)) == len(labels)
    for target in CASE.targets:
        for belongs in (target.is_contestant, target.is_peer):
            assert sum(map(belongs, labels)) == 1, target.what


def test_section_and_plot(measurements, tmp_path):
    lines = students.section(CASE, measurements).splitlines()
    for line in (
        "| zoo, teacher, beam 5 | 42.00 | 6.00 (6.00–6.00) | 50 | 25 |",
        "| transformers, teacher, greedy | not measured: no torch |  |  |  |",
        "| student with shortlist, greedy, beside the teacher, beam 5 | 6.00× | ≥ 6.00× | met |",
        "| student with shortlist, greedy, beside the teacher, greedy | not yet measured | reported |  |",
        "The export of the student in int8 with its shortlist has 9.5 MB (at most 10).",
        "It has 0.25 BLEU less than the teacher with beams (at most 0.5).",
    ):
        assert line in lines, line
    file = tmp_path / "plot.png"
    students.plot(CASE, measurements, file)
    assert file.read_bytes().startswith(b"\x89PNG")
