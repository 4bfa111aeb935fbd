"""Trains a named model: `python -m training.train --model NAME --data SPEC --workdir DIR [--set key=value ...]`."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from training.config.initial_run import open_workdir
from training.config.settings import SECTIONS, read_settings
from training.config.settings_help import describe
from training.data import spec_forms
from training.loop.resolve import Request, resolve_run
from zoo.cli import ArgumentParser, run_process
from zoo.startup import start_backend
from zoo.workdir import WorkDir


def _parser(**options: Any) -> ArgumentParser:
    parser = ArgumentParser(prog="training.train", description="Trains a named model into a work directory.", **options)
    parser.add_argument("--model", metavar="NAME", help="a name from zoo.list_models()")
    parser.add_argument("--data", metavar="SPEC", help=spec_forms())
    parser.add_argument("--workdir", metavar="DIR", help="where everything is written; required")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="settings in TOML, YAML or JSON, in the sections model, data and training; model.name and data.spec in it "
        "replace --model and --data; DIR/config.json repeats the run of a work directory, with the last settings "
        "where they were changed on the way",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="settings such as training.max_steps=1000, model.dropout=0.1 or data.vocab_size=8000; they override "
        "those of --config",
    )
    parser.add_argument(
        "--init_from",
        metavar="DIR",
        help="begin from the weights of this work directory, or of preset:NAME; see training.init_from",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run that the work directory holds; with --set, most settings of training may change",
    )
    parser.add_argument(
        "--profile", action="store_true", help="trace a few batches for TensorBoard's profiler, into DIR/tb"
    )
    return parser


def _request(arguments: argparse.Namespace) -> Request:
    """Returns what the arguments ask for; the model is that of the initial run, unless another is named."""
    file = read_settings(arguments.config) if arguments.config else dict.fromkeys(SECTIONS, {})
    model, settings = arguments.model, list(arguments.set)
    if arguments.init_from:
        settings.append(f"training.init_from={arguments.init_from}")
        if model is None and "name" not in file["model"]:
            model = open_workdir(arguments.init_from).read_config()["model"]["name"]
    return Request(model, arguments.data, settings, file)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command.

    Raises:
        InputError: For bad names, settings or data, or a work directory that holds another run.
    """
    words = sys.argv[1:] if argv is None else argv
    if {"-h", "--help"} & set(words):
        _help(words)
        return
    parser = _parser()
    arguments = parser.parse_args(argv)
    if not arguments.workdir:
        parser.error("the following arguments are required: --workdir")
    workdir, request = WorkDir(arguments.workdir), _request(arguments)
    names = zip(("--model", "--data"), request.names(), strict=True)
    missing = [argument for argument, name in names if name is None]
    if missing and not arguments.resume:
        parser.error(f"the following arguments are required: {', '.join(missing)}, unless a --config has them")
    # All mistakes in it are reported before the seconds that the backend takes to start.
    run = resolve_run(workdir, request, arguments.resume)
    start_backend()
    from training.loop.failures import RunStopped
    from training.loop.trainer import train

    try:
        metrics = train(workdir, run, arguments.profile)
    except RunStopped as stopped:
        print(f"{'error: ' if stopped.status == 1 else ''}{stopped}", file=sys.stderr)
        sys.exit(stopped.status)
    print(json.dumps({"workdir": arguments.workdir, **metrics}))


def _help(words: Sequence[str]) -> None:
    """Prints the help, with the options of the model that --model names."""
    parser = _parser(add_help=False)
    parser.add_argument("-h", "--help", action="store_true", help="show this, and with --model the model's options")
    model = parser.parse_known_args(words)[0].model
    print(f"{parser.format_help()}\n{describe(model)}")


def command() -> int:
    """Runs the command and returns its exit status."""
    return run_process(main)


if __name__ == "__main__":
    sys.exit(command())
