"""Makes a work directory of a public checkpoint: `python -m training.import_model SOURCE --workdir DIR`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from training.hardware.startup import return_freed_memory
from zoo.decoding_options import LANGUAGES, add_languages
from zoo.runtime.cli import ArgumentParser, run_process
from zoo.runtime.startup import start_backend

DTYPES = ("float32", "bfloat16")
"""The types that weights can be stored in."""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; raises InputError for a checkpoint that cannot be imported."""
    parser = ArgumentParser(
        prog="training.import_model", description="Makes a work directory of a checkpoint that others have trained."
    )
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="hf:DIR, a folder in the layout of Hugging Face, or hf:OWNER/NAME[@REVISION] from its hub (extra `hub`); "
        "ctranslate2:DIR; marian:DIR, a folder of Marian with weights in .npz; or safetensors:DIR, which "
        "export.convert wrote",
    )
    parser.add_argument("--workdir", metavar="DIR", required=True, help="where everything is written; a new folder")
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default=DTYPES[0],
        help="type that weights are rounded to and stored in; bfloat16 takes half the space. They are loaded and "
        "computed with as float32 (%(default)s)",
    )
    parser.add_argument(
        "--ignore",
        metavar="KEY",
        action="append",
        default=[],
        help="an unsupported key of config.json to ignore; may be repeated",
    )
    add_languages(parser, "that of its tokenizer")
    arguments = parser.parse_args(argv)
    start_backend()
    from training.importing.workdir import import_checkpoint

    languages = {name: getattr(arguments, name) for name in LANGUAGES}
    workdir, dtype = Path(arguments.workdir), arguments.dtype
    described = import_checkpoint(arguments.source, workdir, dtype, arguments.ignore, **languages)
    print(json.dumps(described, ensure_ascii=False))


def command() -> int:
    """Runs the command and returns its exit status."""
    return_freed_memory()
    return run_process(main)


if __name__ == "__main__":
    sys.exit(command())
