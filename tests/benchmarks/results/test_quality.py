"""Means over seeds, and the choice of how to decode."""

from benchmarks.results.quality import groups, shortened


def _row(seed, decoding, validation, test, model="m", settings="", date="2026-11-21", goal=""):
    blank = {"task": "t", "parameters": "", "minutes": "", "hardware": "", "commit": "", "note": ""}
    cells = {"seed": seed, "decoding": decoding, "validation": validation, "test": test, "model": model}
    return blank | cells | {"settings": settings, "date": date, "goal": goal}


def test_validation_chooses_among_what_all_seeds_have():
    rows = [_row("1", "greedy", "3", "9"), _row("2", "greedy", "4", "8")]
    rows += [_row("1", "beam", "5", "5", goal=">=7"), _row("2", "beam", "6", "6", goal=">=7")]
    rows += [_row("1", "reranked", "9", "9"), _row("1", "untested", "8", ""), _row("2", "untested", "8", "")]
    (group,) = groups(rows, lower_is_better=False, digits=1)
    assert group.last["decoding"] == "beam" and group.written("test") == "5.5\u00a0±\u00a00.7"
    assert group.missed() == ["- **t, `m`**: 5.5\u00a0±\u00a00.7 on test (≥\u00a07), missed by 1.5"]
    (group,) = groups(rows, lower_is_better=True, digits=1)
    assert group.last["decoding"] == "greedy"


def test_the_newest_run_of_a_seed_counts_and_what_was_not_asked_is_a_dash():
    rows = [_row("1", "beam", "", "5", date="2026-11-23"), _row("1", "beam", "", "7"), _row("1", "greedy", "", "8")]
    (group,) = groups(rows, lower_is_better=False, digits=2)
    assert (group.written("validation"), group.written("test"), group.split) == ("–", "5.00", "test")


def test_a_table_keeps_the_best_of_each_model():
    rows = [_row("1", "", "", str(100 - number), settings=str(number)) for number in range(20)]
    found = groups([*rows, _row("1", "", "", "1", model="last")], lower_is_better=False, digits=0)
    kept = shortened(found)
    assert [group.last["settings"] for group in kept[:-1]] == [str(number) for number in range(11)]
    assert kept[-1].last["model"] == "last" and len(kept) == 12
