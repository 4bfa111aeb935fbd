"""Saves finished cells in a file of JSON lines, so that an interrupted experiment can be resumed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.experiment import Cell, Metrics
from zoo.errors import InputError


class Store:
    """The results of one experiment, a line for each finished cell with its settings, seed, metrics and budget.

    An incomplete last line, written by a killed process, is dropped.

    Args:
        path: The file.
        budget: The settings that must be equal in all rows: data, steps, and whether the run is quick.

    Raises:
        InputError: If the file has rows of another budget, or is not a file of results.
    """

    def __init__(self, path: Path, budget: Mapping[str, Any]) -> None:
        self.path = path
        self.budget = dict(budget)
        self._rows: dict[str, dict[str, Any]] = {}
        for row in self._read():
            if row["budget"] != self.budget:
                raise InputError(
                    f"{path} has results of another budget, {_shown(row['budget'])}. Received: {_shown(self.budget)}. "
                    "Results of both cannot be compared in one table: use another --workdir."
                )
            self._rows[_key(row["settings"], row["seed"])] = row

    def _read(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            self.path.write_bytes(whole)
        try:
            rows = [json.loads(line) for line in whole.decode().splitlines()]
            if not all({"budget", "settings", "seed", "metrics", "commit"} <= set(row) for row in rows):
                raise ValueError("a row lacks a field")
        except (ValueError, TypeError) as error:
            raise InputError(f"{self.path} is not a file of results: {error}.") from None
        return rows

    def get(self, cell: Cell) -> Metrics | None:
        """Returns the metrics of a cell; `None` if it is not finished."""
        row = self._rows.get(_key(cell.settings, cell.seed))
        return None if row is None else row["metrics"]

    def add(self, cell: Cell, metrics: Metrics, commit: str) -> None:
        """Saves the metrics of a finished cell."""
        row = {
            "settings": dict(cell.settings),
            "seed": cell.seed,
            "budget": self.budget,
            "metrics": {name: float(value) for name, value in metrics.items()},
            "commit": commit,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        self._rows[_key(cell.settings, cell.seed)] = row

    def commits(self) -> list[str]:
        """Returns the commits at which the rows were measured."""
        return sorted({row["commit"] for row in self._rows.values()})


def _key(settings: Mapping[str, Any], seed: int) -> str:
    return json.dumps([dict(settings), seed], sort_keys=True)


def _shown(budget: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in budget.items())
