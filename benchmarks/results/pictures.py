"""A picture for each page: the figures of its tables as points."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.results.pages import DE_EN, EN_DE, QUALITY_SECTIONS, SPEED_SECTIONS
from benchmarks.results.quality import shortened
from benchmarks.results.rows import FOLDER, joined

_INK = "#7f7f7f"  # readable on white and on black
_POINT = "#0d9488"
_SHORT = "#ea6a1e"

Point = tuple[str, float, float, str]
"""Label, value, deviation, and the value as text."""


def quality_points(folder: Path = FOLDER) -> list[Point]:
    """Returns BLEU on the test set of each row of Multi30k."""
    points = []
    for section in QUALITY_SECTIONS:
        if section.task in (EN_DE, DE_EN):
            for group in shortened(section.groups(folder)):
                direction = "en → de" if section.task == EN_DE else "de → en"
                settings = group.last["settings"].replace("lower case, ", "")
                label = f"{joined(group.last['model'], settings)} ({direction})"
                points.append((label, group.mean("test") or 0, group.deviation("test") or 0, group.written("test")))
    return points


def speed_points(folder: Path = FOLDER) -> list[Point]:
    """Returns the speeds relative to other software on the page."""
    points = []
    for row in (row for section in SPEED_SECTIONS for row in section.rows(folder)):
        peer = row["metric"].removeprefix("speed against ").removesuffix("'")
        if row["unit"] == "×" and row["metric"].startswith("speed against ") and peer != "one client":
            case = joined(row["task"].partition(":")[0], row["settings"].replace("--", ""))
            points.append((f"{case}: {peer}", float(row["value"]), 0.0, f"{row['value']}×"))
    return points


def _figure(points: Sequence[Point], xlabel: str, color: Any) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(8.5, 0.6 + 0.22 * len(points)), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    for row, (_, value, deviation, text) in enumerate(points):
        axes.errorbar(value, -row, xerr=deviation or None, fmt="o", color=color(value), markersize=4)
        offset = {"xytext": (8, 0), "textcoords": "offset points"}
        axes.annotate(text, (value + deviation, -row), **offset, va="center", fontsize=8, color=_INK)
    axes.set_yticks([-row for row in range(len(points))], [point[0] for point in points])
    axes.tick_params(colors=_INK, labelsize=8)
    axes.set_xlabel(xlabel, color=_INK, fontsize=8)
    axes.grid(axis="x", color=_INK, alpha=0.3)
    axes.spines[:].set_visible(False)
    axes.margins(x=0.15, y=0.02)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": path.name, "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def draw_quality(path: Path, folder: Path = FOLDER) -> None:
    """Draws BLEU of each row of Multi30k, with the deviation over its runs."""
    figure, _ = _figure(quality_points(folder), "BLEU on the test set, Multi30k", lambda value: _POINT)
    _save(figure, path)


def draw_speed(path: Path, folder: Path = FOLDER) -> None:
    """Draws the speeds relative to other software; those below 1 have another color."""
    label = "times as fast as the software named last"
    figure, axes = _figure(speed_points(folder), label, lambda value: _POINT if value >= 1 else _SHORT)
    axes.set_xscale("log", base=2)
    ticks = (0.25, 0.5, 1, 2, 4)
    axes.set_xticks(ticks, [f"{tick}×" for tick in ticks])
    axes.minorticks_off()
    axes.axvline(1, color=_INK, linewidth=1)
    _save(figure, path)
