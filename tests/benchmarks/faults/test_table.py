import itertools
import time

import pytest

from benchmarks.faults.__main__ import CASES, SECONDS, main
from benchmarks.faults.table import Attempt, Case, run_cases


def case(attempts, tried="a lamp: dropped", tries=7, seconds=5.0):
    return Case(tried, "it shines", attempts, tries, seconds)


def holds(stage):
    while True:
        yield Attempt(True, "dropped")


def breaks_twice(stage):
    for index in itertools.count():
        yield Attempt(index not in (2, 5), f"fall {index}", measurement="shards" if index == 5 else "")


def raises(stage):
    yield Attempt(True, "dropped")
    raise KeyError("lamp")


def test_a_case_is_tried_so_often_and_what_did_not_hold_is_told(tmp_path, capsys):
    page = tmp_path / "page.md"
    assert main(["--output", str(page)], [case(holds, "a cup: dropped"), case(breaks_twice)]) == 1
    shown, told = capsys.readouterr()
    assert shown == page.read_text(encoding="utf-8")
    assert "| a cup: dropped | 7 | all | it shines |  |" in shown
    assert "| a lamp: dropped | 7 | **5** | it shines | shards |" in shown
    assert "- fall 2\n- fall 5\n" in shown
    assert "did not hold: fall 2" in told
    assert f"`python -m benchmarks.faults --output {page}`" in shown


def test_all_cases_fit_into_the_time_and_have_names_of_their_own():
    assert main(["--quick"], [case(holds)]) == 0
    assert sum(case.seconds for case in CASES) <= SECONDS
    assert len({case.tried for case in CASES}) == len(CASES)


def test_a_case_that_breaks_or_was_never_tried_did_not_hold(capsys):
    assert main(["--quick"], [case(lambda stage: (x for x in ()))]) == 1
    assert main(["--quick"], [case(lambda stage: (x for x in [Attempt(True, "", 0)]))]) == 1
    assert "It was never tried." in capsys.readouterr().out
    assert main(["--quick"], [case(raises, tries=20), case(holds, "a cup: dropped", tries=20)]) == 1
    shown = capsys.readouterr().out
    assert "KeyError: 'lamp'" in shown
    assert "| a lamp: dropped | 2 | **1** |" in shown
    assert "| a cup: dropped | 2 | all |" in shown


def test_only_those_that_match_are_run_and_the_page_is_left_alone(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("benchmarks.faults.__main__.PAGE", tmp_path / "page.md")
    assert main(["--only", "*cup*"], [case(raises), case(holds, "a cup: dropped")]) == 0
    assert "a lamp" not in capsys.readouterr().out
    assert not (tmp_path / "page.md").exists()
    assert main([], [case(holds)]) == 0
    assert "a lamp" in (tmp_path / "page.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main(["--only", "*vase*"], [case(holds)])
    assert ended.value.code == 2
    assert "a lamp: dropped" in capsys.readouterr().err


def test_a_case_ends_with_its_time_and_the_table_with_all_of_it(capsys):
    def slow(stage):
        for _ in range(100):
            time.sleep(0.02)
            yield Attempt(True, "dropped")

    rows = run_cases([case(slow, tries=100, seconds=0.1)], seed=0, quick=False, seconds=60)
    assert 1 <= len(rows[0].attempts) < 50
    assert run_cases([case(slow), case(slow)], seed=0, quick=False, seconds=-1) == []
    assert "a lamp: dropped" in capsys.readouterr().err


def test_the_same_seed_means_the_same_chance():
    def drawn(stage):
        yield Attempt(True, str(stage.chance.random()))

    stories = [
        [row.attempts[0].story for row in run_cases([case(drawn), case(drawn, "a cup")], seed, False, 60)]
        for seed in (3, 3, 4)
    ]
    assert stories[0] == stories[1] != stories[2]
    assert stories[0][0] != stories[0][1]
