"""Runs all measurements and the conformance checks: `make bench`. Parts that were finished before are loaded.

`python -m benchmarks [--data SPEC] [--workdir DIR --text FILE] [--output FILE] [--fresh]`
"""

import argparse
import contextlib
import io
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tqdm import tqdm

from benchmarks import attention, decoding, growth, training
from benchmarks.runner.command import CommandParser, write
from benchmarks.runner.process import ROOT
from benchmarks.runner.store import load_or_measure

NO_INPUTS = "Not yet measured: pass `--workdir`, a trained `transformer_tiny`, and `--text`, source sentences."


def load_or_run(name: str, module: str, arguments: list[str], fresh: bool) -> str:
    """Returns the output that is stored under a name; if there is none, runs the command and stores its output."""
    command = [sys.executable, "-m", module, *arguments]

    def run() -> str:
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout

    return load_or_measure(name, {"arguments": arguments}, run, fresh)


def printed_by(main: Callable[[list[str]], int], fresh: bool, arguments: Sequence[str] = ()) -> str:
    """Returns the output of a command that stores its results itself."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        main([*arguments, *(["--fresh"] if fresh else [])])
    return text.getvalue()


def subjects(options: argparse.Namespace) -> dict[str, Callable[[], str]]:
    """Returns the functions that measure the subjects, by the headings of their sections."""
    fresh, data = options.fresh, ["--data", options.data] if options.data else []

    def trained(name: str, *more: str) -> str:
        if not options.text:
            return NO_INPUTS
        inputs = [str(Path(options.workdir).resolve()), "--text", str(Path(options.text).resolve())]
        return load_or_run(name, "benchmarks.decoding", [*inputs, *more], fresh)

    return {
        "Attention": lambda: printed_by(attention.main, fresh),
        "Training": lambda: printed_by(training.main, fresh, data),
        "Growth": lambda: printed_by(growth.main, fresh),
        "Decoding": lambda: trained("decoding"),
        "Evaluation of a test set": lambda: trained("evaluation", "--case", "test_set", "--rounds", "3"),
        "Decoding, untrained": lambda: printed_by(decoding.main, fresh, data),
        "Who keeps the attention contract": lambda: load_or_run("conformance", "benchmarks.conformance", [], fresh),
    }


def main(arguments=None) -> int:
    """Runs the command; returns its exit status."""
    parser = CommandParser("", __doc__)
    parser.prog = "python -m benchmarks"
    parser.add_argument("--data", metavar="SPEC", help="parallel text, text:DIR:SRC-TGT, for the epoch and a test set")
    parser.add_argument("--workdir", help="a trained transformer_tiny, for decoding")
    parser.add_argument("--text", help="source sentences, one a line, for decoding")
    parser.add_output()
    parser.add_fresh()
    options = parser.parse_args(arguments)
    if bool(options.workdir) != bool(options.text):
        parser.error("--workdir and --text go together.")
    sections = []
    for heading, measure in tqdm(subjects(options).items(), "make bench", unit="part", disable=None):
        sections.append(f"## {heading}\n\n{measure().strip()}\n")
        print(f"\n{sections[-1]}", flush=True)
    write("\n".join(sections), options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
