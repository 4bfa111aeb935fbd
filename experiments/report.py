"""Writes the evidence of an experiment: a page with a table, and a plot."""

import math
import platform
import re
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.experiment import Experiment, Metrics, Results, Verdict
from zoo.errors import InputError
from zoo.runtime.cores import available_cores, processor
from zoo.runtime.extras import missing_extra
from zoo.workdir import replacing

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 120
MOST_COLUMNS = 8  # that fit on a page
NAMES = {
    "bleu": "BLEU",
    "d_k": "d_k",
    "joined": "sentences joined",
    "symbols_per_second": "tokens/s",
    "test_seconds": "seconds of the test",
    "to_end": "to the end",
    "to_next": "to the next",
    "to_previous": "to the previous",
    "to_same": "to the same",
    "worst_removed": "without the worst head",
    "median_removed": "without the median head",
    **{f"at_{distance}": f"distance {distance}" for distance in (8, 32, 128, 512)},
    **{f"pruned_{share}": f"{share} % pruned" for share in (25, 50, 75, 100)},
    **{f"accuracy_{times}": f"accuracy, {times}× length" for times in (1, 2, 4)},
}


def commit() -> str:
    """Returns the current commit, with `+` if files differ from it; empty outside a repository."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True).stdout.strip()

    try:
        short = git("rev-parse", "--short", "HEAD")
        return f"{short}+" if short and git("status", "--porcelain", "--untracked-files=no") else short
    except OSError:
        return ""


def hardware() -> str:
    """Returns the name of the processor and the number of cores."""
    return f"{processor('model name') or platform.machine()}, {available_cores()} cores"


def table(experiment: Experiment, results: Results) -> str:
    """Returns the table of settings and metrics, as mean ± deviation if there are several seeds."""
    groups = results.groups()
    names = list(dict.fromkeys(name for settings, _ in groups for name in settings))
    head = [*names, *(column for column in experiment.columns)]
    rows = [
        [*(str(settings.get(name, "")) for name in names), *_numbers(experiment, metrics)]
        for settings, metrics in groups
    ]
    return folded([readable(name) for name in head], rows)


def folded(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown; if it is too wide, the first columns, and all of them in a collapsed section."""

    def text(width: int) -> str:
        lines = [line[:width] for line in (head, ["---"] * len(head), *rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    if len(head) <= MOST_COLUMNS:
        return text(len(head))
    summary = f"<summary>All {len(head)} columns</summary>"
    return f"{text(MOST_COLUMNS)}\n\n<details markdown>\n{summary}\n\n{text(len(head))}\n\n</details>"


def readable(name: str) -> str:
    """Returns the title of a setting's or metric's column, such as `"BLEU from 6 words"` for `"bleu_from_6"`."""
    if match := re.fullmatch(r"bleu_from_(\d+)", name):
        return f"BLEU from {match[1]} word{'s' * (match[1] != '1')}"
    return NAMES.get(name) or name.replace("_", " ")


def _numbers(experiment: Experiment, metrics: Sequence[Metrics]) -> list[str]:
    """Returns the cells of a row; if nothing was measured, the first one is "not yet run"."""
    measured = [row for row in metrics if row]
    if not measured:
        return ["not yet run", *[""] * (len(experiment.columns) - 1)]
    return [_number(measured, name, how) for name, how in experiment.columns.items()]


def _number(metrics: Sequence[Metrics], name: str, how: str) -> str:
    values = [row[name] for row in metrics if name in row and not math.isnan(row[name])]
    if not values:
        return ""
    text = format(statistics.fmean(values), how)
    return text if len(values) == 1 else f"{text} ± {format(statistics.stdev(values), how)}"


def page(
    experiment: Experiment,
    results: Results,
    verdicts: Sequence[Verdict],
    commits: Sequence[str],
    how: str,
    setting: str,
) -> str:
    """Returns the page of evidence, in Markdown."""
    seeds = len({seed for _, seed, _ in results.rows})
    lines = [f"- **{verdict}**: {verdict.claim.text}" for verdict in verdicts]
    measured = f"Measured by `{how}`, {seeds} seed{'s' * (seeds != 1)}, on {hardware()}, shared with other work"
    parts = [
        f"# {experiment.name}: {experiment.question}",
        f"Set beside: {experiment.source}.",
        f"It would be refuted by: {experiment.refuted_by}.",
        *([setting] if setting else []),
        "\n".join(lines),
        f"![{experiment.name}]({experiment.name}.svg)",
        table(experiment, results),
        f"{measured}, at commit {', '.join(f'`{commit}`' for commit in commits) or 'unknown'}"
        + (" (+: with changes)." if any("+" in commit for commit in commits) else "."),
    ]
    return "\n\n".join(parts) + "\n"


def write_plot(experiment: Experiment, results: Results, path: Path) -> None:
    """Draws the plot into a file, in the format of its suffix.

    Raises:
        InputError: If Matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from error
    figure: Any = Figure(figsize=(9, 3.6), layout="constrained")
    with matplotlib.rc_context({"svg.hashsalt": experiment.name, "axes.grid": True, "grid.alpha": 0.3}):
        experiment.draw(results.measured(), figure)
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)


def write(experiment: Experiment, results: Results, text: str, folder: Path) -> Path:
    """Writes page and plot into a folder, and returns the path of the page.

    Args:
        experiment: The experiment.
        results: The results to draw.
        text: The page, see `page`.
        folder: The folder.

    Raises:
        InputError: If the folder cannot be written to.
    """
    path = folder / f"{experiment.name}.md"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_plot(experiment, results, folder / f"{experiment.name}.svg")
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder} cannot be written to: {error.strerror or error}.") from error
    return path
