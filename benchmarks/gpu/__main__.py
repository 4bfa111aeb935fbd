"""Takes the figures of one GPU: trainings, attention, decoding and a profile, ours on JAX beside compiled PyTorch.

`KERAS_BACKEND=jax python -m benchmarks.gpu --minutes N --output DIR [--cache FILE] [--commit NAME] [--only TEXT]`

`KERAS_BACKEND=jax python -m benchmarks.gpu --dry_run --output DIR`

It needs JAX, Keras and PyTorch; neither TensorFlow nor a network. Each figure is written as soon as it is there, into
`figures.jsonl` and `figures.csv` of the folder. Besides there are `goals.md`; `profile.csv` and the trace that it is
of; `jax.log` and `torch.log`; and `cache.tar.gz`, with all that was compiled, which the next run takes by `--cache`:
eight files of at most 16 MiB. The plan is `benchmarks/gpu/plan.py`. With `--dry_run` nothing is measured: XLA's program
of a step, compiled for this machine, is counted.
"""

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.command import TINY
from benchmarks.gpu import cache, plan
from benchmarks.gpu.contestants import start
from benchmarks.gpu.figure import Figure
from benchmarks.gpu.goals import goals
from benchmarks.gpu.results import Results, commit_here
from benchmarks.gpu.runner import Runner
from benchmarks.report import goal_table

ARCHIVE = "cache.tar.gz"


def chosen(options: argparse.Namespace) -> list[Figure]:
    """Returns the figures that are to be taken."""
    figures = [figure for figure in plan.figures() if not options.only or options.only in figure.label]
    return [plan.tiny(figure) for figure in figures] if options.tiny else figures


@contextlib.contextmanager
def folder_of_programs() -> Iterator[Path]:
    """A folder with the same path in every run: the key of a program that JAX has compiled contains it."""
    folder = Path(tempfile.gettempdir()) / "attention-zoo-gpu"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(options: argparse.Namespace, began: float) -> None:
    """Takes the figures, and writes what was asked for beside what was found."""
    results = Results(options.output, options.commit or commit_here() or "unknown")
    with folder_of_programs() as compiled:
        if options.cache is not None:
            print(f"{cache.unpack(options.cache, compiled)} files from {options.cache}", flush=True)
        runner = Runner(
            results,
            lambda library: start(library, compiled, options.output, began),
            time.monotonic() - (time.time() - began) + 60 * options.minutes,
        )
        try:
            runner.run(chosen(options))
        finally:
            runner.close()
            kept, lost = cache.pack(compiled, options.output / ARCHIVE)
    print(f"{kept} compiled files are in {ARCHIVE}, {lost} had no room", flush=True)
    lines = [*([TINY, ""] if options.tiny else []), *goal_table("goal", goals(results))]
    (options.output / "goals.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines), flush=True)


def parser() -> argparse.ArgumentParser:
    """Returns the command line."""
    lines = str(__doc__).splitlines()
    command = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=lines[0])
    command.add_argument("--minutes", type=float, default=10.0, help="when it has to be done, from its start (10)")
    command.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the results")
    command.add_argument("--cache", type=Path, metavar="FILE", help=f"the {ARCHIVE} of a run before")
    command.add_argument("--commit", default="", metavar="NAME", help="the commit, where there is no repository")
    command.add_argument("--only", default="", metavar="TEXT", help="figures whose name and contestant contain it")
    command.add_argument("--dry_run", action="store_true", help="count what XLA makes of a step, and measure nothing")
    command.add_argument("--tiny", action="store_true", help="tiny sizes, to see that everything runs")
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    began, command = time.time(), parser()
    options = command.parse_args(arguments)
    if options.minutes <= 0:
        command.error(f"--minutes must be positive. Received: {options.minutes}")
    if options.cache is not None and not options.cache.is_file():
        command.error(f"--cache must be the {ARCHIVE} of a run. Received: {options.cache}")
    if options.dry_run:
        os.environ.setdefault("KERAS_BACKEND", "jax")
        from benchmarks.gpu.dry_run import write_report  # it starts JAX

        options.output.mkdir(parents=True, exist_ok=True)
        write_report(chosen(options), options.output, options.tiny)
        return 0
    measure(options, began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
