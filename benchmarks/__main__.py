"""Runs all measurements and the conformance checks: `make bench`. What is finished is kept, and not run again.

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

from benchmarks import attention, growth
from benchmarks.decoding import untrained
from benchmarks.kept import kept
from benchmarks.timing import ROOT
from benchmarks.training import __main__ as training

NO_INPUTS = "Not yet measured: it needs `--workdir`, a trained `transformer_tiny`, and `--text`, source sentences."


def output_of(name: str, module: str, arguments: list[str], fresh: bool) -> str:
    """Returns what a command prints, which is kept.

    Args:
        name: Name to keep it by.
        module: The command.
        arguments: Its arguments.
        fresh: Whether to run it in any case.
    """
    command = [sys.executable, "-m", module, *arguments]

    def run():
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout

    return kept(name, {"arguments": arguments}, run, fresh)


def printed_by(main: Callable[[list[str]], int], fresh: bool, arguments: Sequence[str] = ()) -> str:
    """Returns what one of the resumable commands prints.

    Args:
        main: Its function.
        fresh: Whether it measures again.
        arguments: Its arguments besides that.
    """
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        main([*arguments, *(["--fresh"] if fresh else [])])
    return text.getvalue()


def parts(options) -> dict[str, Callable[[], str]]:
    """Returns what measures each part, by its heading.

    Args:
        options: The command line.
    """
    fresh, text = options.fresh, ["--data", options.data] if options.data else []

    def decoding(name, *more):
        if not options.text:
            return NO_INPUTS
        inputs = [str(Path(options.workdir).resolve()), "--text", str(Path(options.text).resolve())]
        return output_of(name, "benchmarks.decoding", [*inputs, *more], fresh)

    return {
        "Attention": lambda: printed_by(attention.main, fresh),
        "Training": lambda: printed_by(training.main, fresh, text),
        "Growth": lambda: printed_by(growth.main, fresh),
        "Decoding": lambda: decoding("decoding"),
        "Evaluation of a test set": lambda: decoding("evaluation", "--whole", "--rounds", "3"),
        "Decoding, untrained": lambda: printed_by(untrained.main, fresh, text),
        "Who keeps the attention contract": lambda: output_of("conformance", "benchmarks.conformance", [], fresh),
    }


def main(arguments=None) -> int:
    """Runs the command; returns its exit status.

    Args:
        arguments: Command line without the program. Default: that of the process.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--data", metavar="SPEC", help="parallel text, text:DIR:SRC-TGT, for the epoch and a test set")
    parser.add_argument("--workdir", help="a trained transformer_tiny, for the part about decoding")
    parser.add_argument("--text", help="source sentences, one a line, for the same")
    parser.add_argument("--output", type=Path, help="file to write everything into as well")
    parser.add_argument("--fresh", action="store_true", help="measure again what runs/bench holds")
    options = parser.parse_args(arguments)
    if bool(options.workdir) != bool(options.text):
        parser.error("--workdir and --text go together.")
    told = []
    for heading, measure in tqdm(parts(options).items(), "make bench", unit="part", disable=None):
        told.append(f"## {heading}\n\n{measure().strip()}\n")
        print(f"\n{told[-1]}", flush=True)
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text("\n".join(told), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
