"""Injects faults, counts how often the promises held, and writes docs/faults.md."""

import shlex
import sys
from collections.abc import Sequence

from benchmarks.faults import serving, training
from benchmarks.faults.table import Case, markdown, run_cases
from benchmarks.runner.command import CommandParser, write_page
from benchmarks.runner.process import ROOT

PAGE = ROOT / "docs" / "faults.md"
SECONDS = 600  # for all cases
CASES = [*training.CASES, *serving.CASES]


def main(arguments: Sequence[str] | None = None, cases: Sequence[Case] = CASES) -> int:
    """Runs the command; returns its exit status, 1 if a promise did not hold."""
    parser = CommandParser("faults", __doc__)
    parser.add_argument("--only", metavar="PATTERN", help="only matching cases, as in '*SIGKILL*'; writes no page")
    parser.add_argument("--quick", action="store_true", help="a tenth of the tries; writes no page without --output")
    parser.add_argument("--seed", type=int, default=0, help="seed of random choices (default: 0)")
    parser.add_output("file to write the table into (default: docs/faults.md)")
    options = parser.parse_args(arguments)
    chosen = parser.choose("only", options.only or "*", cases, lambda case: case.tried)
    rows = run_cases(chosen, options.seed, options.quick, SECONDS)
    words = sys.argv[1:] if arguments is None else arguments
    text = markdown(rows, shlex.join(["python", "-m", "benchmarks.faults", *words]))
    write_page(text, options.output or (None if options.only or options.quick else PAGE))
    return 0 if all(row.has_held() for row in rows) and len(rows) == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
