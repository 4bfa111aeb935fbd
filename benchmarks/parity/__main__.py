"""Compares imported checkpoints with their own software, and writes docs/parity.md."""

import argparse
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from benchmarks.parity.outcomes import FILES
from benchmarks.runner.command import CommandParser

PACKAGES = ("tensorflow", "torch", "transformers", "tokenizers", "ctranslate2", "babel")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = CommandParser("parity", __doc__)
    parser.add_argument(
        "--pretrained", type=Path, required=True, metavar="DIR", help="folder with the tokenizers of public checkpoints"
    )
    parser.add_argument(
        "--text",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="files whose lines tokenizers read as well, or folders of Python sources",
    )
    parser.add_count("lines", None, "about as many of these lines, evenly spread")
    parser.add_argument("--family", default="*", metavar="PATTERN", help="only families with a matching name")
    parser.add_argument(
        "--only",
        choices=("ids", *FILES),
        help="ids: tokenizers alone; writes no page without --output. With --mutate the file to change; ids: all but "
        "config.json",
    )
    parser.add_argument(
        "--mutate",
        action="store_true",
        help="change every key of config.json, every step of tokenizer.json and every key of tokenizer_config.json and "
        "special_tokens_map.json instead: ours must agree with the reference, or refuse the change by name",
    )
    parser.add_fresh()
    parser.add_argument("--quick", action="store_true", help="a tenth of the inputs; writes no page")
    parser.add_output("file to write the tables into (docs/parity.md)")
    options = parser.parse_args(arguments)
    if options.only in FILES and not options.mutate:
        parser.error(f"--only {options.only} requires --mutate. Without it, --only is ids")
    parser.require(*PACKAGES)
    if not options.pretrained.is_dir():
        parser.error(f"--pretrained must be a folder. Received: {options.pretrained}")
    if absent := [str(path) for path in options.text if not path.is_file() and not any(path.rglob("*.py"))]:
        parser.error(f"--text must be files, or folders of Python sources. Received: {', '.join(absent)}")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ |= {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "1"}
    warnings.simplefilter("ignore")  # those of the other software
    from benchmarks.parity.families import FAMILIES

    chosen = parser.choose("family", options.family, FAMILIES, lambda family: family.name)
    if options.mutate:
        from benchmarks.parity.mutate import mutate

        files = [options.only] if options.only in FILES else FILES[1:] if options.only else FILES
        return mutate(options.pretrained, chosen, files, options.output)
    from benchmarks.parity.command import run

    return run(options, chosen, shlex.join(["python", "-m", "benchmarks.parity", *(_shown(options))]))


def _shown(options: argparse.Namespace) -> list[str]:
    """Returns the arguments for the page, without the folders of this machine."""
    texts = ["--text", *(path.name for path in options.text)] if options.text else []
    texts += [] if options.lines is None else ["--lines", str(options.lines)]
    only = ["--only", options.only] if options.only else []
    return ["--pretrained", options.pretrained.name, *texts, *only]


if __name__ == "__main__":
    sys.exit(main())
