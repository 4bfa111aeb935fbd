"""Evaluates a work directory: `python -m training.evaluate DIR --data SPEC --split test [--beam_size N]`."""

import json
import sys
from collections.abc import Sequence

from training.data import SPLITS, load_data
from zoo.cli import ArgumentParser, run_command
from zoo.quiet import start_backend
from zoo.workdir import WorkDir


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command.

    Args:
        argv: Arguments without the program's name; `None` means those of the process.

    Raises:
        InputError: For a bad work directory, SPEC or split.
    """
    parser = ArgumentParser(prog="training.evaluate", description="Evaluates a trained work directory.")
    parser.add_argument("workdir", metavar="DIR", help="work directory of training.train")
    parser.add_argument("--data", metavar="SPEC", help="data SPEC; default: what the model was trained on")
    parser.add_argument("--split", default="test", choices=SPLITS, help="default: test")
    parser.add_argument("--beam_size", type=int, default=1, metavar="N", help="default: 1, greedy search")
    parser.add_argument("--length_penalty", type=float, default=0.6, help="exponent of beam search; default: 0.6")
    arguments = parser.parse_args(argv)
    decoding = {"beam_size": arguments.beam_size, "length_penalty": arguments.length_penalty}
    WorkDir(
        arguments.workdir
    ).read_config()  # Mistakes are reported before the seconds that the backend takes to start.
    if arguments.data:
        load_data(arguments.data)
    start_backend()
    from training.evaluation import evaluate

    print(json.dumps(evaluate(arguments.workdir, arguments.data, arguments.split, **decoding), ensure_ascii=False))


def command() -> int:
    """Runs the command and returns its exit status."""
    return run_command(main)


if __name__ == "__main__":
    sys.exit(command())
