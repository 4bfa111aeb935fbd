"""Trains a named model: `python -m training.train --model NAME --data SPEC --workdir DIR [--set key=value ...]`."""

import json
import sys
from collections.abc import Sequence

from training.config import resolve
from training.data import load_data
from zoo.cli import ArgumentParser, run_command
from zoo.quiet import start_backend
from zoo.workdir import WorkDir


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command.

    Args:
        argv: Arguments without the program's name; `None` means those of the process.

    Raises:
        InputError: For bad names, settings or data, or a work directory that holds another run.
    """
    parser = ArgumentParser(prog="training.train", description="Trains a named model into a work directory.")
    parser.add_argument("--model", required=True, metavar="NAME", help="a name from zoo.list_models()")
    parser.add_argument("--data", required=True, metavar="SPEC", help="dates or text:DIR:SRC-TGT")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="where everything is written")
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="settings such as training.max_steps=1000, model.dropout=0.1 or data.vocab_size=8000",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run that the work directory holds")
    arguments = parser.parse_args(argv)
    config = resolve(arguments.model, arguments.data, arguments.set)
    load_data(config.data.spec)  # A wrong SPEC is reported before the seconds that the backend takes to start.
    start_backend()
    from training.trainer import train

    metrics = train(WorkDir(arguments.workdir), config, arguments.resume)
    print(json.dumps({"workdir": arguments.workdir, **metrics}))


def command() -> int:
    """Runs the command and returns its exit status."""
    return run_command(main)


if __name__ == "__main__":
    sys.exit(command())
