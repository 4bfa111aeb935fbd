"""Makes a corpus of teachers' translations: `python -m training.distill TEACHER... --data SPEC --output DIR`.

Of the n-best translations of all teachers, the one most similar to the reference replaces it in the training split, or
with `--references` is added to it; the other splits are copied. `--data text:DIR:source-target` trains a student on
it. After an interruption, the same command computes only the missing parts.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from training.data import spec_forms
from training.hardware.startup import start_decoding
from training.synthetic_data.distillation import DistillationRequest, distill
from training.synthetic_data.parts import check_translator
from zoo.errors import InputError
from zoo.runtime.cli import ArgumentParser, run_process


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command; raises InputError for bad usage or bad data."""
    parser = ArgumentParser(prog="training.distill", description="Makes a corpus of teachers' translations.")
    parser.add_argument("teachers", nargs="+", metavar="TEACHER", help="work directory of a translator, or preset:NAME")
    parser.add_argument("--data", metavar="SPEC", required=True, help=spec_forms())
    parser.add_argument("--output", type=Path, metavar="DIR", required=True, help="where the corpus is written")
    parser.add_argument("--beam_size", type=int, default=5, metavar="N", help="translations of each teacher (5)")
    parser.add_argument("--references", action="store_true", help="keep the references beside the translations")
    arguments = parser.parse_args(argv)
    if arguments.beam_size < 1:
        raise InputError(f"--beam_size must be positive. Received: {arguments.beam_size}.")
    for path in arguments.teachers:
        check_translator(path)
    request = DistillationRequest(
        tuple(arguments.teachers), arguments.data, arguments.output, arguments.beam_size, arguments.references
    )
    print(json.dumps(distill(request, start=start_decoding), ensure_ascii=False), flush=True)


def command() -> int:
    """Runs the command and returns its exit status."""
    return run_process(main)


if __name__ == "__main__":
    sys.exit(command())
