"""The files of results are well formed, and rows are appended as they are."""

import csv
import shutil

import pytest
from support.every import every

from benchmarks.results.rows import COLUMNS, FOLDER, append, distance, newest, problems, read
from zoo.errors import InputError

ROW = {"task": "Dates", "model": "rnnsearch", "metric": "exact match", "test": "99.9", "commit": "1a2b3c4+"}


def test_every_row_is_well_formed():
    assert {path.stem for path in FOLDER.glob("*.csv")} == {*COLUMNS}
    with every() as failures:
        for name, columns in COLUMNS.items():
            with open(FOLDER / f"{name}.csv", encoding="utf-8", newline="") as file:
                assert next(csv.reader(file)) == [*columns]
            rows = read(name)
            assert rows, name
            for line, row in enumerate(rows, 2):
                with failures.of(f"line {line} of {name}.csv"):
                    assert not [*problems(name, row)]


@pytest.mark.parametrize(
    "cells",
    [
        {"test": "99,9"},
        {"commit": "main"},
        {"date": "today"},
        {"seed": "1, 2"},
        {"goal": "at least 99"},
        {"note": "2026-11-21-nothing.md"},
        {"task": ""},
        {"test": ""},
        {"value": "7"},
    ],
)
def test_wrong_rows_are_refused(tmp_path, cells):
    with pytest.raises(InputError, match=f"translation.csv.*{next(iter(cells))}|nothing was measured"):
        append("translation", tmp_path, **{**ROW, **cells})
    assert not [*tmp_path.iterdir()]


def test_a_row_is_appended(tmp_path):
    shutil.copy(FOLDER / "translation.csv", tmp_path)
    appended = append("translation", tmp_path, **ROW)
    assert appended["date"] and appended["hardware"] and appended["seed"] == ""
    assert read("translation", tmp_path) == [*read("translation"), appended]
    with pytest.raises(InputError, match="translations.*translation"):
        append("translations", tmp_path, **ROW)


def test_distances_and_newest_rows():
    assert [distance(3.5, goal) for goal in (">=4", "<=3", "2±0.5", "3±0.5", ">=3.5")] == [0.5, 0.5, 1.0, 0, 0]
    rows = [
        {"model": "a", "date": "2026-11-22"},
        {"model": "b", "date": "2026-11-21"},
        {"model": "a", "date": "2026-11-21"},
    ]
    assert newest(rows, ["model"]) == rows[:2]
