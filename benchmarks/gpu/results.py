"""The files of figures: a line of JSON with all values, and a row of a table, written as soon as each is measured."""

import csv
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COLUMNS = (
    "figure",
    "contestant",
    "rate",  # units a second, the median
    "unit",
    "milliseconds",  # of a turn, the median
    "share_of_peak",  # of the device's peak of operations per second, by our own count of operations
    "peak_memory",  # bytes
    "remark",
    "card",
    "versions",
    "commit",
)


class Results:
    """The files of results in a folder: `figures.jsonl`, and `figures.csv` with the columns above.

    Attributes:
        rows: The written rows, in order.
    """

    def __init__(self, folder: Path, commit: str):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.commit = folder, commit
        self.rows: list[dict[str, Any]] = []
        self._lines, self._table = folder / "figures.jsonl", folder / "figures.csv"
        self._lines.unlink(missing_ok=True)
        with self._table.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerow(COLUMNS)

    def write(self, figure: str, contestant: str = "", **values: Any) -> None:
        """Appends a row, and waits until it is on the disk, since the machine may be lost at any time."""
        row = {"figure": figure, "contestant": contestant, **values, "commit": self.commit}
        self.rows.append(row)
        with self._lines.open("a", encoding="utf-8") as file:
            print(json.dumps(row), file=file)
            _sync(file)
        with self._table.open("a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, COLUMNS, extrasaction="ignore").writerow(row)
            _sync(file)

    def rate(self, figure: str, contestant: str) -> float | None:
        """Returns the last rate of a contestant; `None` if it was not measured."""
        return self.value(figure, contestant, "rate")

    def value(self, figure: str, contestant: str, column: str) -> float | None:
        """Returns the last value of a contestant in a column; `None` if it was not measured."""
        values = [
            row[column]
            for row in self.rows
            if (row["figure"], row["contestant"]) == (figure, contestant) and row.get(column) is not None
        ]
        return values[-1] if values else None


def as_row(response: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the response of a process with its versions as text."""
    versions = response.get("versions", {})
    return {**response, "versions": ", ".join(f"{name} {version}" for name, version in versions.items())}


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
