"""Measures steps of training beside the peers, each in a process and an environment of its own.

`python -m benchmarks.training [--case NAME …] [--contestant NAME …] [--rounds N] [--threads N] [--fresh]`
"""

import argparse
import dataclasses
import os
import re
import sys

from benchmarks.kept import kept
from benchmarks.peers import REQUIREMENTS
from benchmarks.training import measure, report, start
from benchmarks.training.cases import CASES

START = "start"
METHOD = (
    "A step: forward, backward and Adam, on a batch without padding that is always the same, with dropout and"
    " label smoothing. Median of {rounds} turns A B A B (quartiles), {threads} threads each, every contestant in a"
    " process of its own, every peer in an environment of its own. Processor time: of all threads, which other work on"
    " the machine disturbs less. Peak memory: largest resident set of the process, libraries included."
)


def main(arguments=None) -> int:
    """Runs the command; returns its exit status.

    Args:
        arguments: Command line without the program. Default: that of the process.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument(
        "--case", action="append", choices=[*CASES, START], help="a case, more than once for several (all)"
    )
    parser.add_argument("--contestant", action="append", default=[], help="how its name begins, such as zoo (all)")
    parser.add_argument("--rounds", type=int, default=15, help="turns that each time is the median of (15)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each contestant (all)")
    parser.add_argument("--fresh", action="store_true", help="measure again what runs/bench holds")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to see that everything runs")
    options = parser.parse_args(arguments)
    for name in ("rounds", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be positive. Received: {getattr(options, name)}")
    settings = {"rounds": options.rounds, "threads": options.threads, "tiny": options.tiny}
    print(METHOD.format(**settings), flush=True)
    if options.tiny:
        print("\n**Tiny sizes: these numbers say only that it runs.**")
    for name in options.case or [*CASES, START]:
        print(f"\n{_told(name, settings, options.contestant, options.fresh)}", flush=True)
    return 0


def _told(name, settings, wanted, fresh):
    """Returns the tables of a case, which is measured unless it was before."""
    if name == START:
        rounds = settings["rounds"]
        return start.table(kept("training/start", {"rounds": rounds}, lambda: start.measure(rounds), fresh))
    case = CASES[name].among(wanted)
    file = "-".join([f"training/{name}", *(re.sub(r"\W+", "_", each) for each in wanted)])
    hangs_on = {**settings, "case": dataclasses.asdict(case), "pins": REQUIREMENTS}
    found = kept(file, hangs_on, lambda: measure.measure(case, **settings), fresh, measure.is_complete)
    return report.table(case, found)


if __name__ == "__main__":
    sys.exit(main())
