"""Injects faults, counts how often the promises held, and writes docs/faults.md."""

import argparse
import fnmatch
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.faults import serving, training
from benchmarks.faults.case import Case
from benchmarks.faults.table import markdown, run_cases
from benchmarks.process import ROOT

PAGE = ROOT / "docs" / "faults.md"
SECONDS = 600  # for all cases
CASES = [*training.CASES, *serving.CASES]


def main(arguments: Sequence[str] | None = None, cases: Sequence[Case] = CASES) -> int:
    """Runs the command; returns its exit status, 1 if a promise did not hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", help="only matching cases, as in '*SIGKILL*'; writes no page")
    parser.add_argument("--quick", action="store_true", help="a tenth of the tries; writes no page without --output")
    parser.add_argument("--seed", type=int, default=0, help="seed of random choices (default: 0)")
    parser.add_argument("--output", type=Path, help="file to write the table into (default: docs/faults.md)")
    options = parser.parse_args(arguments)
    chosen = [case for case in cases if fnmatch.fnmatchcase(case.tried, options.only or "*")]
    if not chosen:
        names = "\n".join(f"  {case.tried}" for case in cases)
        parser.error(f"No case matches. Received: --only {options.only!r}. The cases are\n{names}")
    rows = run_cases(chosen, options.seed, options.quick, SECONDS)
    words = sys.argv[1:] if arguments is None else arguments
    text = markdown(rows, shlex.join(["python", "-m", "benchmarks.faults", *words]))
    print(text, end="")
    output = options.output or (None if options.only or options.quick else PAGE)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    return 0 if all(row.has_held() for row in rows) and len(rows) == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
