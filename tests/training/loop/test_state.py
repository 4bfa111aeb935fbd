"""The log of a run."""

import json

from training.loop.state import cut_log, final_metrics, read_log
from zoo.workdir import WorkDir

RECORDS = [{"step": 2, "loss": 3.5}, {"step": 4, "loss": 2.5}]


BROKEN = ["5", "null", '"step"', "[]", "[2]", "{}", '{"loss": 1.5}', '{"step": null}', '{"step": "4"}', '{"step": 4']


def test_what_is_no_record(tmp_path, subtests):
    workdir = WorkDir(tmp_path)
    workdir.model.touch()
    first, second = map(json.dumps, RECORDS)
    for line in [*BROKEN, "[" * 5000]:
        with subtests.test(line[:20]):
            workdir.metrics.write_text("\n".join([line, first, line, second, line]))
            assert read_log(workdir) == RECORDS
            assert final_metrics(workdir) is None
            cut_log(workdir, 2)
            assert workdir.metrics.read_text() == f"{first}\n"


def test_a_run_that_goes_on_has_no_final_line(tmp_path):
    workdir = WorkDir(tmp_path)
    workdir.model.touch()
    workdir.metrics.write_text("".join(f"{json.dumps(record)}\n" for record in [*RECORDS, {"step": 4, "final": True}]))
    assert final_metrics(workdir) == {"step": 4, "final": True}
    cut_log(workdir, 4)
    assert read_log(workdir) == RECORDS
