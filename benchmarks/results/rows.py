"""The files of results: their columns, the checks of a row, and how one is appended. See `results/README.md`."""

import csv
import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.runner import report
from benchmarks.runner.process import ROOT
from zoo.errors import InputError, unknown_name

FOLDER = ROOT / "results"
NOTES = "docs/lab-notes"
_WHERE = ("hardware", "commit", "date", "command", "note")
QUALITY = (
    *("task", "model", "settings", "seed", "decoding", "metric", "unit", "validation", "test", "goal"),
    *("parameters", "steps", "minutes", *_WHERE),
)
SPEED = ("task", "model", "settings", "metric", "unit", "value", "low", "high", "goal", *_WHERE)
COLUMNS = {
    **dict.fromkeys(("translation", "classification", "language_models"), QUALITY),
    **dict.fromkeys(("attention", "growth", "steps", "decoding", "serving", "data", "parity"), SPEED),
}
_NUMBER = r"-?\d+(\.\d+)?(e-?\d+)?"
_FORMS = {
    **dict.fromkeys(("validation", "test", "parameters", "steps", "minutes", "value", "low", "high"), _NUMBER),
    "seed": r"\d+(\+\d+)*",
    "goal": r"(>=|<=)\d+(\.\d+)?|\d+(\.\d+)?±\d+(\.\d+)?",
    "commit": r"[0-9a-f]{7,40}\+?( [0-9a-f]{7,40}\+?)*",
    "date": r"\d{4}-\d\d-\d\d",
}

Row = Mapping[str, str]


def read(name: str, folder: Path = FOLDER) -> list[dict[str, str]]:
    """Returns the rows of a file of results.

    Args:
        name: The name of the file without its extension, such as `"translation"`.
        folder: The folder of the file.
    """
    with open(folder / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def problems(name: str, row: Row) -> Iterator[str]:
    """Yields the problems of a row."""
    if differing := {*row} ^ {*COLUMNS[name]}:
        yield f"missing or unknown columns: {', '.join(sorted(map(str, differing)))}"
    for column, cell in row.items():
        if cell and column in _FORMS and not re.fullmatch(_FORMS[column], cell):
            yield f"{column}={cell} does not match {_FORMS[column]}"
    for column in ("task", "model", "metric", "date"):
        if not row.get(column):
            yield f"{column} is empty"
    if not any(row.get(column) for column in ("validation", "test", "value")):
        yield "nothing was measured"
    if row.get("note") and not (ROOT / NOTES / row["note"]).exists():
        yield f"note={row['note']} is not in {NOTES}"


def append(name: str, folder: Path = FOLDER, **cells: object) -> dict[str, str]:
    """Appends a row to a file of results, and returns it.

    Date, commit and hardware default to today, this checkout and this machine.

    Args:
        name: The name of the file without its extension, such as `"translation"`.
        folder: The folder of the file.
        **cells: The cells of the row by column; all others are empty.

    Raises:
        InputError: If there is no such file, or a cell is wrong.
    """
    if name not in COLUMNS:
        raise unknown_name("file of results", name, COLUMNS)
    row = {
        **dict.fromkeys(COLUMNS[name], ""),
        "date": datetime.date.today().isoformat(),
        "commit": report.commit().replace(" with changes", "+"),
        "hardware": report.machine_and_commit().partition(", commit")[0],
        **{column: str(cell) for column, cell in cells.items()},
    }
    if wrong := [*problems(name, row)]:
        raise InputError(f"{name}.csv does not take this row: {'; '.join(wrong)}. Received: {cells}.")
    with open(folder / f"{name}.csv", "a", encoding="utf-8", newline="") as file:
        csv.DictWriter(file, COLUMNS[name], lineterminator="\n").writerow(row)
    return row


def newest(rows: Iterable[Row], columns: Sequence[str]) -> list[Row]:
    """Returns the newest row for each combination of cells in some columns; of two on one day, the later one."""
    by_cells: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key = tuple(row[column] for column in columns)
        if key not in by_cells or by_cells[key]["date"] <= row["date"]:
            by_cells[key] = row
    return [*by_cells.values()]


def distance(value: float, goal: str) -> float:
    """Returns the distance of a value from a goal such as `">=4"`, `"<=140"` or `"2±0.15"`; 0 if it reaches it."""
    if "±" in goal:
        middle, tolerance = map(float, goal.split("±"))
        return max(abs(value - middle) - tolerance, 0.0)
    bound = float(goal[2:])
    return max(bound - value if goal.startswith(">=") else value - bound, 0.0)


def written_goal(goal: str) -> str:
    """Returns a goal as text."""
    if "±" in goal:
        return goal.replace("±", "\u00a0±\u00a0")
    return f"{'≥' if goal.startswith('>=') else '≤'}\u00a0{thousands(f'{float(goal[2:]):g}')}"


def thousands(number: str) -> str:
    """Returns a number with commas between thousands."""
    whole, point, rest = number.partition(".")
    return f"{int(whole):,}{point}{rest}" if whole.isdigit() else number


def joined(*parts: str) -> str:
    """Returns the parts that are not empty, with commas between them."""
    return ", ".join(part for part in parts if part)


def measured(row: Row) -> str:
    """Returns date and commit of a row, as a link to its lab notes."""
    date = f"[{row['date']}](../{NOTES}/{row['note']})" if row["note"] else row["date"]
    return joined(date, *(f"`{commit}`" for commit in row["commit"].split()))


def missed(what: str, short: Sequence[str], row: Row) -> str:
    """Returns an item of the list of missed goals: figures, and a link to their lab notes."""
    why = f" ([notes](../{NOTES}/{row['note']}))" if row["note"] else ""
    return f"- **{what}**: {'; '.join(short)}{why}"
