"""The log of a run."""

import json

import pytest

from training.loop.state import cut_log, final_metrics, read_log
from zoo.workdir import WorkDir

RECORDS = [{"step": 2, "loss": 3.5}, {"step": 4, "loss": 2.5}]


@pytest.mark.parametrize(
    "line",
    [
        "5",
        "null",
        '"step"',
        "[]",
        "[2]",
        "{}",
        '{"loss": 1.5}',
        '{"step": null}',
        '{"step": "4"}',
        '{"step": 4',
        "[" * 5000,
    ],
)
def test_what_is_no_record(tmp_path, line):
    workdir = WorkDir(tmp_path)
    first, second = map(json.dumps, RECORDS)
    workdir.metrics.write_text("\n".join([line, first, line, second, line]))
    workdir.model.touch()
    assert read_log(workdir) == RECORDS
    assert final_metrics(workdir) is None
    cut_log(workdir, 2)
    assert workdir.metrics.read_text() == f"{first}\n"
