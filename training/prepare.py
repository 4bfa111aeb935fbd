"""Encodes a corpus into token shards: `python -m training.prepare --data SPEC --output DIR`, for `--data prepared:DIR`.

The examples are read once, piece by piece. A vocabulary is learned from a sample of them, and several processes encode
them in parallel. After an interruption, the same command keeps the complete shards and computes the others.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.config.options import DataConfig
from training.config.settings import parse_settings
from training.config.tokenizer_files import checksums
from training.config.vocabularies import VOCABULARY_SETTINGS
from training.data import spec_forms
from training.preparation.request import SAVED_NAMES, PreparationOptions, PreparationRequest
from training.preparation.run import prepare
from training.preparation.runners import WorkerLost, local, on_beam
from zoo.errors import InputError
from zoo.options import Option, read_values
from zoo.runtime.cli import ArgumentParser, run_process
from zoo.runtime.cores import available_cores

_SETTINGS = (*VOCABULARY_SETTINGS, "max_examples")


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="training.prepare",
        description="Encodes a corpus into token shards, for --data prepared:DIR.",
        epilog="With --runner, all other flags are Apache Beam's, such as --direct_num_workers=2.",
        allow_abbrev=False,
    )
    parser.add_argument("--data", metavar="SPEC", required=True, help=spec_forms())
    parser.add_argument("--output", metavar="DIR", required=True, help="where the shards are written")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--workers", metavar="N", type=int, help="processes; default: the number of cores")
    group.add_argument("--runner", metavar="NAME", help="run on Apache Beam, on this runner, such as FlinkRunner")
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help=f"settings of the data that ids depend on: {', '.join(f'data.{key}' for key in _SETTINGS)}",
    )
    for name, option in PreparationOptions.declared().items():
        parser.add_argument(f"--{name}", **_argument(option), help=_meaning(option))
    for name, saved in SAVED_NAMES.items():
        parser.add_argument(f"--{saved}", dest=name, help=argparse.SUPPRESS)
    return parser


def _argument(option: Option) -> dict[str, Any]:
    if option.kind is bool:
        return {"action": "store_true", "default": None}
    return {"metavar": "|".join(option.choices) or {int: "N", float: "X"}[option.kind]}


def _meaning(option: Option) -> str:
    return option.meaning if option.kind is bool else f"{option.meaning} Default: {option.default}."


def _request(arguments: argparse.Namespace) -> PreparationRequest:
    declared = PreparationOptions.declared()
    values = {name: value for name in declared if (value := getattr(arguments, name)) is not None}
    options = PreparationOptions(**{name: declared[name].read(f"--{name}", value) for name, value in values.items()})
    sections = parse_settings(arguments.set)
    for section, settings in sections.items():
        for key, value in settings.items():
            if section != "data" or key in DataConfig.declared() and key not in _SETTINGS:
                raise InputError(
                    f"{section}.{key} is a setting of training; ids depend on data.{', data.'.join(_SETTINGS)}. "
                    f"Received: {section}.{key}={value}."
                )
    settings = read_values(DataConfig.declared(), sections["data"], "data")
    if files := checksums(settings.get("tokenizer", "")):
        settings.setdefault("tokenizer_sha256", files)  # so that shards of other files are not reused
    return PreparationRequest(arguments.data, settings, options)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command.

    Raises:
        InputError: For bad data or settings, or a folder with other contents.
        WorkerLost: If a worker process ended unexpectedly.
    """
    parser = _parser()
    arguments, flags = parser.parse_known_args(argv)
    if flags and not arguments.runner:
        parser.error(f"unrecognized arguments: {' '.join(flags)}")
    if arguments.workers is not None and arguments.workers < 1:
        parser.error(f"--workers must be positive. Received: {arguments.workers}")
    request = _request(arguments)
    runner = local(arguments.workers or available_cores())
    if arguments.runner:
        runner = on_beam([f"--runner={arguments.runner}", *flags])
    manifest = prepare(request, Path(arguments.output), runner)
    splits = {
        name: {"examples": entry.examples, "dropped": dict(entry.dropped), "shards": len(entry.shards)}
        for name, entry in manifest.splits.items()
    }
    print(json.dumps({"output": arguments.output, **splits}))


def command() -> int:
    """Runs the command and returns its exit status."""
    try:
        return run_process(main)
    except WorkerLost as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(command())
