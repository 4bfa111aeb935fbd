"""The quality of models: means over seeds, each with the decoding that validation data chose."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results.rows import FOLDER, Row, distance, joined, measured, missed, newest, read, written_goal
from benchmarks.runner.report import table

MOST = 12  # rows of a table
_HEAD = "model|settings|decoding|validation|test|runs|weights|training|measured".split("|")


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds alone, with one decoding, and the number of decimals of their figures."""

    runs: tuple[Row, ...]
    digits: int

    @property
    def last(self) -> Row:
        return self.runs[-1]

    @property
    def split(self) -> str:
        """The split of the main figure: `"test"`, or `"validation"` if the test split was not used."""
        return "test" if self.mean("test") is not None else "validation"

    def mean(self, split: str) -> float | None:
        """Returns the mean of the runs; `None` unless each was measured on that split."""
        cells = [run[split] for run in self.runs]
        return statistics.fmean(map(float, cells)) if all(cells) else None

    def deviation(self, split: str) -> float | None:
        """Returns the standard deviation of several runs."""
        return statistics.stdev(float(run[split]) for run in self.runs) if len(self.runs) > 1 else None

    def written(self, split: str) -> str:
        """Returns mean ± deviation."""
        mean = self.mean(split)
        if mean is None:
            return "–"
        deviation = self.deviation(split)
        return f"{mean:.{self.digits}f}" + (
            f"\u00a0±\u00a0{deviation:.{self.digits}f}" if deviation is not None else ""
        )

    def cells(self) -> list[str]:
        """Returns the cells of this group in a table."""
        minutes = sorted({float(run["minutes"]) for run in self.runs if run["minutes"]})
        took = " to ".join(f"{value:g}" for value in (*minutes[:1], *minutes[1:][-1:]))
        hardware = " and ".join(sorted({run["hardware"] for run in self.runs} - {""}))
        size = float(self.last["parameters"] or 0) / 1e6
        return [
            f"`{self.last['model']}`",
            self.last["settings"] or "the recipe",
            self.last["decoding"].replace("--", "") or "–",
            self.written("validation"),
            self.written("test"),
            str(len(self.runs)),
            f"{size:.2f} M" if size else "–",
            joined(f"{took} min" if took else "", hardware) or "–",
            measured(self.last),
        ]

    def missed(self) -> list[str]:
        """Returns an item for the list of missed goals, unless the mean reaches the goal."""
        mean = self.mean(self.split)
        gap = distance(mean, self.last["goal"]) if self.last["goal"] and mean is not None else 0.0
        if round(gap, self.digits) == 0:
            return []
        what = f"{self.last['task']}, {joined('`' + self.last['model'] + '`', self.last['settings'])}"
        goal = written_goal(self.last["goal"])
        figure = f"{self.written(self.split)} on {self.split} ({goal}), missed by {gap:.{self.digits}f}"
        return [missed(what, [figure], self.last)]


def groups(rows: Iterable[Row], lower_is_better: bool, digits: int) -> list[Group]:
    """Returns all runs by model and settings, the best first, each with the decoding that validation data chose.

    The candidates are the decodings that were used with most of the seeds and on both splits; if validation data was
    never used, the first decoding, which was fixed before.
    """
    sign = -1 if lower_is_better else 1
    decodings: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in newest(rows, ("model", "settings", "decoding", "seed")):
        decodings.setdefault((row["model"], row["settings"]), {}).setdefault(row["decoding"], []).append(row)
    chosen = []
    for by_decoding in decodings.values():
        candidates = [Group(tuple(runs), digits) for runs in by_decoding.values()]
        most = max(len(group.runs) for group in candidates)
        candidates = [group for group in candidates if len(group.runs) == most]
        validated = [group for group in candidates if group.mean("validation") is not None]
        tested = [group for group in validated if group.split == "test"]
        best = tested or validated or candidates[:1]
        chosen.append(max(best, key=lambda group: sign * (group.mean("validation") or 0)))
    return sorted(
        chosen, key=lambda group: (group.split == "test", sign * (group.mean(group.split) or 0)), reverse=True
    )


def shortened(ordered: Sequence[Group]) -> list[Group]:
    """Returns at most twelve groups in their order: the best of each model, and then the best of all others."""
    ordered = [group for group in ordered if group.split == "test"] or ordered
    models = [group.last["model"] for group in ordered]
    order = sorted(range(len(ordered)), key=lambda index: (models.index(models[index]) != index, index))
    return [ordered[index] for index in sorted(order[:MOST])]


def groups_table(rows: Sequence[Group]) -> str:
    """Returns groups as a table, without empty columns."""
    columns = zip(_HEAD, *(group.cells() for group in rows), strict=True)
    head, *rows = zip(*(column for column in columns if {*column[1:]} != {"–"}), strict=True)
    return "\n".join(table(head, rows))


@dataclass(frozen=True)
class QualitySection:
    """A task on the page.

    Args:
        title: Its heading.
        file: The file of results.
        task: The task in that file.
        metric: The metric in that file.
        digits: The number of decimals.
        text: The text above the table.
    """

    title: str
    file: str
    task: str
    metric: str
    digits: int
    text: str

    def groups(self, folder: Path = FOLDER) -> list[Group]:
        """Returns all runs of the task, the best first."""
        rows = [row for row in read(self.file, folder) if row["task"] == self.task and row["metric"] == self.metric]
        return groups(rows, self.metric == "cross-entropy", self.digits)

    def write(self, folder: Path = FOLDER) -> str:
        """Returns the section in Markdown."""
        return f"## {self.title}\n\n{self.text}\n\n{groups_table(shortened(self.groups(folder)))}"
