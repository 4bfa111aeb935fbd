"""Adds back-translated pairs to a parallel corpus:
`python -m training.back_translate MODEL --monolingual FILE --data SPEC --output DIR`.

MODEL translates from the target language of SPEC to its source language. Its translation of each line, with a tag
before it, and the line itself become a pair of the corpus, beside those of SPEC; `--data text:DIR:source-target` trains
on it. After an interruption, the same command computes only the missing parts.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from training.data import spec_forms
from training.hardware.startup import start_decoding
from training.synthetic_data.back_translation import TAG, BackTranslationRequest, back_translate
from training.synthetic_data.parts import check_translator
from zoo.errors import InputError
from zoo.runtime.cli import ArgumentParser, run_process


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; raises InputError for bad usage or bad data."""
    parser = ArgumentParser(
        prog="training.back_translate", description="Adds back-translated pairs to a parallel corpus."
    )
    parser.add_argument("model", metavar="MODEL", help="work directory of the reverse translator, or preset:NAME")
    parser.add_argument("--monolingual", type=Path, metavar="FILE", required=True, help="lines in the target language")
    parser.add_argument("--data", metavar="SPEC", required=True, help=spec_forms())
    parser.add_argument("--output", type=Path, metavar="DIR", required=True, help="where the corpus is written")
    parser.add_argument("--beam_size", type=int, default=5, metavar="N", help="width of the search (5)")
    parser.add_argument("--tag", default=TAG, metavar="WORD", help=f"word before each synthetic source ({TAG})")
    arguments = parser.parse_args(argv)
    if arguments.beam_size < 1:
        raise InputError(f"--beam_size must be positive. Received: {arguments.beam_size}.")
    check_translator(arguments.model)
    statistics = back_translate(BackTranslationRequest(**vars(arguments)), start=start_decoding)
    print(json.dumps(statistics, ensure_ascii=False), flush=True)


def command() -> int:
    """Runs the command and returns its exit status."""
    return run_process(main)


if __name__ == "__main__":
    sys.exit(command())
