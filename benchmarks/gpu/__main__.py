"""Measures training, attention, decoding and a profile on one GPU, ours on JAX beside compiled PyTorch.

`KERAS_BACKEND=jax python -m benchmarks.gpu --minutes N --output DIR [--cache FILE] [--commit NAME] [--only TEXT]`

`KERAS_BACKEND=jax python -m benchmarks.gpu --dry_run --output DIR`

It requires JAX, Keras and PyTorch, and neither TensorFlow nor a network. Each figure is immediately written to
`figures.jsonl` and `figures.csv` of the folder. Further files are `goals.md`; `profile.csv` and its trace; `jax.log`
and `torch.log`; and `cache.tar.gz` with the compiled programs, for `--cache` of the next run: eight files of at most
16 MiB. The plan is `benchmarks/gpu/plan.py`. With `--dry_run` nothing is measured: the kernels of XLA's program of a
step are counted.
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

from benchmarks.gpu import cache, plan
from benchmarks.gpu.contestants import start
from benchmarks.gpu.figure import Figure
from benchmarks.gpu.goals import goals
from benchmarks.gpu.results import Results
from benchmarks.gpu.runner import Runner
from benchmarks.runner.command import TINY
from benchmarks.runner.report import commit, goal_table

ARCHIVE = "cache.tar.gz"


def chosen(options: argparse.Namespace) -> list[Figure]:
    """Returns the figures to measure."""
    figures = [figure for figure in plan.figures() if not options.only or options.only in figure.label]
    return [plan.tiny(figure) for figure in figures] if options.tiny else figures


@contextlib.contextmanager
def folder_of_programs() -> Iterator[Path]:
    """Yields a folder with the same path in every run, since it is part of the keys of JAX's cache."""
    folder = Path(tempfile.gettempdir()) / "attention-zoo-gpu"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measure(options: argparse.Namespace, began: float) -> None:
    """Measures the figures, and writes their goals."""
    results = Results(options.output, options.commit or commit())
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
            packed, others = cache.pack(compiled, options.output / ARCHIVE)
    print(f"{packed} compiled files are in {ARCHIVE}, {others} exceeded its limit", flush=True)
    lines = [*([TINY, ""] if options.tiny else []), *goal_table("goal", goals(results))]
    (options.output / "goals.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines), flush=True)


def parser() -> argparse.ArgumentParser:
    """Returns the command line."""
    lines = str(__doc__).splitlines()
    command = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=lines[0])
    command.add_argument("--minutes", type=float, default=10.0, help="the time limit, from the start (10)")
    command.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder of the results")
    command.add_argument("--cache", type=Path, metavar="FILE", help=f"the {ARCHIVE} of an earlier run")
    command.add_argument("--commit", default="", metavar="NAME", help="the commit, if this is no repository")
    command.add_argument("--only", default="", metavar="TEXT", help="figures whose name and contestant contain it")
    command.add_argument("--dry_run", action="store_true", help="count the kernels of a step, and measure nothing")
    command.add_argument("--tiny", action="store_true", help="tiny sizes, to test that everything runs")
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
        from benchmarks.gpu.dry_run import write_report  # which initializes JAX

        options.output.mkdir(parents=True, exist_ok=True)
        write_report(chosen(options), options.output, options.tiny)
        return 0
    measure(options, began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
