"""Base classes of experiments: cells that are measured, their results, and the claims that are checked."""

import dataclasses
import inspect
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

Settings = Mapping[str, Any]
Metrics = Mapping[str, float]


@dataclass(frozen=True)
class ExperimentRequest:
    """What the command requests of an experiment.

    Attributes:
        workdir: The folder of its results and of the runs that it trains.
        quick: Whether the run must end within minutes, for which most experiments have smaller settings.
        seeds: Number of seeds of each cell that trains or draws random numbers.
        data: SPEC of the data, for an experiment with `takes_data`; `None` for the experiment's own.
        steps: Steps of each training; `None` for the experiment's own.
    """

    workdir: Path
    quick: bool = False
    seeds: int = 1
    data: str | None = None
    steps: int | None = None

    def on(self, data: str) -> Self:
        """Returns the same request on other data."""
        return dataclasses.replace(self, data=data)


@dataclass(frozen=True)
class Cell:
    """The settings and the seed of one measurement."""

    settings: Settings
    seed: int = 1

    def __str__(self) -> str:
        return ", ".join([*(f"{name}={value}" for name, value in self.settings.items()), f"seed {self.seed}"])


class NotYetRun(Exception):
    """A claim needs cells that were not measured yet."""


class Results:
    """The metrics of all cells; those of a cell that was not measured yet are empty."""

    def __init__(self, rows: Iterable[tuple[Settings, int, Metrics]]) -> None:
        self.rows = list(rows)

    def measured(self) -> "Results":
        """Returns the results of the cells that were measured."""
        return Results(row for row in self.rows if row[2])

    def complete(self) -> "Results":
        """Returns these results.

        Raises:
            NotYetRun: If a cell was not measured yet.
        """
        if not all(metrics for _, _, metrics in self.rows):
            raise NotYetRun
        return self

    def groups(self) -> list[tuple[Settings, list[Metrics]]]:
        """Returns the metrics of all seeds by settings, in the order of the cells."""
        groups: dict[tuple[Any, ...], tuple[Settings, list[Metrics]]] = {}
        for settings, _, metrics in self.rows:
            groups.setdefault(tuple(settings.items()), (settings, []))[1].append(metrics)
        return list(groups.values())

    def values(self, metric: str, **settings: Any) -> list[float]:
        """Returns a metric of all cells with these settings that have it.

        Raises:
            NotYetRun: If one of the cells was not measured yet.
        """
        Results(self._with(settings)).complete()
        return self.known(metric, **settings)

    def known(self, metric: str, **settings: Any) -> list[float]:
        """Returns a metric of all cells with these settings that were measured and have it."""
        return [metrics[metric] for _, _, metrics in self._with(settings) if metric in metrics]

    def mean(self, metric: str, **settings: Any) -> float:
        """Returns the mean of a metric over the cells with these settings that have it; NaN if none has.

        Raises:
            NotYetRun: If one of the cells was not measured yet.
        """
        values = self.values(metric, **settings)
        return statistics.fmean(values) if values else math.nan

    def line(self, axis: str, metric: str, **settings: Any) -> tuple[list[Any], list[float]]:
        """Returns the values of a setting, and the mean of a metric for each, over the cells that were measured."""
        points = sorted({own[axis] for own, _, metrics in self._with(settings) if metric in metrics})
        return points, [statistics.fmean(self.known(metric, **{axis: point}, **settings)) for point in points]

    def _with(self, settings: Settings) -> list[tuple[Settings, int, Metrics]]:
        return [row for row in self.rows if all(row[0].get(name) == value for name, value in settings.items())]


@dataclass(frozen=True)
class Claim:
    """A claim that is checked on the results.

    Attributes:
        text: The claim, for the report.
        holds: Returns whether the results confirm it.
        strong: Whether a `--quick` run that refutes it exits with 1; a full run only reports it.
        full_only: Whether `--quick` has no cells for it.
    """

    text: str
    holds: Callable[[Results], bool]
    strong: bool = True
    full_only: bool = False


@dataclass(frozen=True)
class Verdict:
    """A claim and whether it held; `None` if its cells were not measured yet."""

    claim: Claim
    held: bool | None

    def __str__(self) -> str:
        return {True: "Confirmed", False: "Not confirmed", None: "Not yet run"}[self.held]


class Experiment:
    """Base of the experiments; a subclass sets the attributes and overrides `cells`, `measure`, `claims` and `draw`.

    Attributes:
        name: Its name.
        question: The question that it answers.
        source: The paper, and the figure or table to compare the result with.
        refuted_by: The result that would refute the claim.
        columns: Metrics in the table, and their formats.
        takes_data: Whether it takes `--data` and `--steps`.
        default_seeds: Number of seeds of a full run.
    """

    name = ""
    question = ""
    source = ""
    refuted_by = ""
    columns: Mapping[str, str] = MappingProxyType({})
    takes_data = False
    default_seeds = 1

    def cells(self, request: ExperimentRequest) -> Sequence[Cell]:
        """Returns the cells that are measured."""
        raise NotImplementedError

    def measure(self, cell: Cell, request: ExperimentRequest) -> Metrics:
        """Returns the metrics of a cell."""
        raise NotImplementedError

    def claims(self) -> Sequence[Claim]:
        """Returns the claims in the order of the report."""
        raise NotImplementedError

    def draw(self, results: Results, figure: Any) -> None:
        """Draws the results of the cells that were measured into a Matplotlib figure."""
        raise NotImplementedError

    def budget(self, request: ExperimentRequest) -> dict[str, Any]:
        """Returns the parts of a request that must be equal for all rows of a table."""
        return {"quick": request.quick, "data": request.data, "steps": request.steps}

    def setting(self, request: ExperimentRequest) -> str:
        """Returns the page's description of data, sizes and budget: the docstring of the class."""
        return inspect.cleandoc(type(self).__doc__ or "")

    def verdicts(self, results: Results, quick: bool) -> list[Verdict]:
        """Returns the verdicts on all claims, except those that a quick run has no cells for."""
        return [Verdict(claim, _held(claim, results)) for claim in self.claims() if not (quick and claim.full_only)]


def _held(claim: Claim, results: Results) -> bool | None:
    try:
        return bool(claim.holds(results))
    except NotYetRun:
        return None


def grid(seeds: int, **settings: Sequence[Any]) -> list[Cell]:
    """Returns a cell for every combination of settings and every seed from 1 on."""
    combinations: list[dict[str, Any]] = [{}]
    for name, values in settings.items():
        combinations = [{**chosen, name: value} for chosen in combinations for value in values]
    return [Cell(chosen, seed) for chosen in combinations for seed in range(1, seeds + 1)]
