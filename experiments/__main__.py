"""Runs an experiment: `python -m experiments NAME [--quick] [--seeds N] [--workdir DIR] [--data SPEC] [--steps N]
[--minutes N]`.

Without a name it lists all experiments. Finished cells are not measured again. A full run writes its page and plot into
docs/evidence, a quick one into its work directory. The exit status is 0, 1 if a quick run does not confirm a claim that
it should, or 2 for bad usage.
"""

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.catalog import NAMES, get_experiment
from experiments.experiment import Experiment, ExperimentRequest, Results
from experiments.report import ROOT, commit, page, table, write
from experiments.store import Store
from zoo.errors import InputError
from zoo.runtime.cli import ArgumentParser, run_process

EVIDENCE = ROOT / "docs" / "evidence"
REFUTED = 1


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="experiments", description="Checks claims about attention by an experiment.")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the experiment; default: list all of them")
    parser.add_argument("--quick", action="store_true", help="at most three minutes, with smaller settings")
    parser.add_argument("--seeds", type=int, metavar="N", help="seeds of each cell (1 for a quick run)")
    parser.add_argument("--workdir", type=Path, metavar="DIR", help="folder of results and runs (runs/experiments)")
    parser.add_argument("--data", metavar="SPEC", help="data to train on, for experiments with a choice")
    parser.add_argument("--steps", type=int, metavar="N", help="steps of each training, likewise")
    parser.add_argument("--minutes", type=float, metavar="N", help="begin no cell after N; 0: only write the page")
    parser.add_argument("--output", type=Path, metavar="DIR", help="folder of page and plot (docs/evidence)")
    return parser


def run(
    experiment: Experiment, request: ExperimentRequest, output: Path, how: str, minutes: float | None = None
) -> bool:
    """Measures missing cells, writes the evidence, and returns whether no strong claim was refuted.

    Args:
        experiment: The experiment.
        request: Its request.
        output: The folder of page and plot.
        how: The command, for the page.
        minutes: Time after which no cell is begun; the page shows missing cells as not yet run.
    """
    store = Store(request.workdir / f"{experiment.name}.jsonl", experiment.budget(request))
    cells, start_time = list(experiment.cells(request)), time.monotonic()
    for number, cell in enumerate(cells, 1):
        is_finished = store.get(cell) is not None
        is_late = minutes is not None and time.monotonic() - start_time >= 60 * minutes
        state = ": finished before" if is_finished else ": not yet run" if is_late else ""
        print(f"{number}/{len(cells)} {cell}{state}", file=sys.stderr, flush=True)
        if not (is_finished or is_late):
            store.add(cell, experiment.measure(cell, request), commit())
    results = Results((cell.settings, cell.seed, store.get(cell) or {}) for cell in cells)
    verdicts = experiment.verdicts(results, request.quick)
    text = page(experiment, results, verdicts, store.commits(), how, experiment.setting(request))
    path = write(experiment, results, text, output)
    print(table(experiment, results))
    for verdict in verdicts:
        print(f"{str(verdict).upper() if verdict.held is False else str(verdict).lower()}: {verdict.claim.text}")
    print(f"{path}, after {time.monotonic() - start_time:.0f} s")
    return all(verdict.held is not False for verdict in verdicts if verdict.claim.strong)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; raises InputError for bad usage."""
    arguments = _parser().parse_args(argv)
    if arguments.name is None:
        width = max(map(len, NAMES))
        for name in NAMES:
            print(f"{name:{width}}  {get_experiment(name).question}")
        return
    experiment = get_experiment(arguments.name)
    for option in ("seeds", "steps"):
        value = getattr(arguments, option)
        if value is not None and value < 1:
            raise InputError(f"--{option} must be positive. Received: {value}.")
    if arguments.minutes is not None and arguments.minutes < 0:
        raise InputError(f"--minutes must be 0 or more. Received: {arguments.minutes}.")
    if not experiment.takes_data and (arguments.data or arguments.steps):
        raise InputError(f"{experiment.name} has its own data and steps: leave out --data and --steps.")
    workdir = arguments.workdir or ROOT / "runs" / "experiments" / ("quick" if arguments.quick else "full")
    seeds = arguments.seeds or (1 if arguments.quick else experiment.default_seeds)
    request = ExperimentRequest(workdir, arguments.quick, seeds, arguments.data, arguments.steps)
    output = arguments.output or (workdir if arguments.quick else EVIDENCE)
    confirmed = run(experiment, request, output, _command_line(experiment, request), arguments.minutes)
    if not confirmed and arguments.quick:
        print(f"error: {experiment.name} did not confirm a claim that a quick run should confirm", file=sys.stderr)
        sys.exit(REFUTED)


def _command_line(experiment: Experiment, request: ExperimentRequest) -> str:
    """Returns the command that repeats the experiment on another machine, without local paths."""
    words = ["python -m experiments", experiment.name, *["--quick"] * request.quick, f"--seeds {request.seeds}"]
    if request.data:
        words.append(f"--data {re.sub('[^:]*/', '', request.data)}")
    if request.steps:
        words.append(f"--steps {request.steps}")
    return " ".join(words)


def command() -> int:
    """Runs the command and returns its exit status."""
    return run_process(main)


if __name__ == "__main__":
    sys.exit(command())
