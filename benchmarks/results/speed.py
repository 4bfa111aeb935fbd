"""Speed, memory and size: figures and their goals, the newest on each kind of hardware."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results.rows import (
    COLUMNS,
    FOLDER,
    SPEED,
    Row,
    distance,
    joined,
    measured,
    missed,
    newest,
    read,
    thousands,
    written_goal,
)
from benchmarks.runner.report import table

_HEAD = "what|measured|found|goal|reached|hardware|when".split("|")
_KEY = ("task", "model", "settings", "metric")


def contestant(row: Row) -> str:
    """Returns the contestant of a row: the model, unless it is the library itself, and the settings."""
    model = "" if row["model"] in ("zoo", "keras") else f"`{row['model']}`"
    return joined(model, row["settings"].replace("--", ""))


def what(row: Row) -> str:
    """Returns the measurement of a row: task, contestant and settings."""
    return joined(row["task"], contestant(row))


def unit(row: Row) -> str:
    """Returns the unit, with a space if it follows a number with one."""
    return row["unit"] if row["unit"] in ("×", "%") else f" {row['unit']}" * bool(row["unit"])


def value(row: Row) -> str:
    """Returns the figure with its unit, and its quartiles or range."""
    spread = f" ({thousands(row['low'])}–{thousands(row['high'])})" if row["low"] else ""
    return f"{thousands(row['value'])}{unit(row)}{spread}"


def gap(row: Row) -> str:
    """Returns the distance of a row from its goal; an empty string if it reaches it, or has none."""
    missing = distance(float(row["value"]), row["goal"]) if row["goal"] else 0.0
    digits = max(len(number.partition(".")[2]) for number in (row["value"], re.split("[=±]", row["goal"])[-1]))
    return f"{missing:,.{digits}f}{unit(row)}" if round(missing, digits) else ""


@dataclass(frozen=True)
class SpeedSection:
    """A task on the page.

    Args:
        title: Its heading.
        text: The text above the table.
        choice: The rows: files, and regular expressions of task, model, settings and metric joined by `|`.
    """

    title: str
    text: str
    choice: tuple[tuple[str, str], ...]

    def rows(self, folder: Path = FOLDER) -> list[Row]:
        """Returns the rows of the table, the newest on each kind of hardware."""
        chosen: list[Row] = []
        for file, pattern in self.choice:
            rows = newest(read(file, folder), (*_KEY, "hardware"))
            rows = [row for row in rows if re.fullmatch(pattern, "|".join(row[column] for column in _KEY))]
            chosen += sorted(rows, key=lambda row: row["task"])
        return chosen

    def write(self, folder: Path = FOLDER) -> str:
        """Returns the section in Markdown."""
        rows, cells = self.rows(folder), []
        shared = f"{rows[0]['task']}, " if len({row["task"] for row in rows}) == 1 else ""
        for row in rows:
            goal = written_goal(row["goal"]) + unit(row) if row["goal"] else "–"
            reached = ("no" if gap(row) else "yes") if row["goal"] else ""
            cells.append(
                [
                    what(row).removeprefix(shared),
                    row["metric"],
                    value(row),
                    goal,
                    reached,
                    row["hardware"] or "–",
                    measured(row),
                ]
            )
        return "\n\n".join(filter(None, (f"## {self.title}", self.text, "\n".join(table(_HEAD, cells)))))


def fell_short(folder: Path = FOLDER) -> Iterator[str]:
    """Yields an item for each task with a figure whose newest measurement, on any hardware, misses its goal."""
    tasks: dict[str, list[Row]] = {}
    for file, columns in COLUMNS.items():
        if columns is SPEED:
            for row in newest(read(file, folder), _KEY):
                if gap(row):
                    tasks.setdefault(row["task"], []).append(row)
    for task, rows in tasks.items():
        yield missed(task, [_figure(row) for row in rows], rows[-1])


def _figure(row: Row) -> str:
    named = joined(contestant(row), row["metric"])
    return f"{named}: {value(row)} ({written_goal(row['goal'])}{unit(row)}), missed by {gap(row)}"
