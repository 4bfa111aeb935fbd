"""What models achieve: means over seeds, each decoded in the way that validation chooses."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import table
from benchmarks.results.rows import FOLDER, Row, distance, joined, measured, missed, newest, read, written_goal

MOST = 12  # rows of a table
_HEAD = "model|settings|decoding|validation|test|runs|weights|training|measured".split("|")


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds alone, decoded in one way, and how many decimals their figures have."""

    runs: tuple[Row, ...]
    digits: int

    @property
    def last(self) -> Row:
        return self.runs[-1]

    @property
    def split(self) -> str:
        """The split that counts: `"test"`, or `"validation"` where the test split was not asked."""
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
        took = " to ".join(f"{each:g}" for each in (*minutes[:1], *minutes[1:][-1:]))
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
        """Returns an item for the list of what fell short, unless the mean reaches the goal."""
        mean = self.mean(self.split)
        gap = distance(mean, self.last["goal"]) if self.last["goal"] and mean is not None else 0.0
        if round(gap, self.digits) == 0:
            return []
        what = f"{self.last['task']}, {joined('`' + self.last['model'] + '`', self.last['settings'])}"
        goal = written_goal(self.last["goal"])
        figure = f"{self.written(self.split)} on {self.split} ({goal}), missed by {gap:.{self.digits}f}"
        return [missed(what, [figure], self.last)]


def groups(rows: Iterable[Row], lower_is_better: bool, digits: int) -> list[Group]:
    """Returns all runs by model and settings, the best first, each decoded in the way that validation chooses.

    The candidates are the ways that were tried with most of the seeds and have been asked of both splits; where
    validation was never asked, the way that stands first, which was fixed before.
    """
    sign = -1 if lower_is_better else 1
    ways: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in newest(rows, ("model", "settings", "decoding", "seed")):
        ways.setdefault((row["model"], row["settings"]), {}).setdefault(row["decoding"], []).append(row)
    found = []
    for by_decoding in ways.values():
        candidates = [Group(tuple(runs), digits) for runs in by_decoding.values()]
        most = max(len(each.runs) for each in candidates)
        candidates = [each for each in candidates if len(each.runs) == most]
        asked = [each for each in candidates if each.mean("validation") is not None]
        tested = [each for each in asked if each.split == "test"]
        found.append(max(tested or asked or candidates[:1], key=lambda each: sign * (each.mean("validation") or 0)))
    return sorted(found, key=lambda each: (each.split == "test", sign * (each.mean(each.split) or 0)), reverse=True)


def shortened(found: Sequence[Group]) -> list[Group]:
    """Returns at most twelve groups in their order: the best of each model first, then the best of all others."""
    found = [each for each in found if each.split == "test"] or found
    models = [each.last["model"] for each in found]
    order = sorted(range(len(found)), key=lambda index: (models.index(models[index]) != index, index))
    return [found[index] for index in sorted(order[:MOST])]


def groups_table(found: Sequence[Group]) -> str:
    """Returns groups as a table, without the columns that none of them fills."""
    columns = zip(_HEAD, *(each.cells() for each in found), strict=True)
    head, *rows = zip(*(column for column in columns if {*column[1:]} != {"–"}), strict=True)
    return "\n".join(table(head, rows))


@dataclass(frozen=True)
class QualitySection:
    """A task on the page.

    Args:
        title: Its heading.
        file: The file of results.
        task: The task, as it stands in that file.
        metric: The metric, likewise.
        digits: How many decimals are written.
        text: What stands above the table.
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
