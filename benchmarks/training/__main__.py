"""Measures steps of training beside the peers, each in a process and an environment of its own.

`python -m benchmarks.training [--case NAME …] [--data SPEC] [--contestant NAME …] [--rounds N] [--threads N] [--fresh]`
"""

import dataclasses
import os
import re
import sys

from benchmarks.arguments import MeasurementParser
from benchmarks.kept import kept
from benchmarks.peers import REQUIREMENTS
from benchmarks.training import measure, report, start
from benchmarks.training.cases import CASES, PRECISIONS
from benchmarks.training.epoch import epoch_case

START, EPOCH = "start", "epoch"
MOST_EPOCHS = 3  # turns of an epoch, which take minutes each
METHOD = (
    "A step: forward, backward and Adam, on a batch without padding that is always the same, with dropout and"
    " label smoothing; an epoch: as many as a text has batches, with the text read anew. Median of {rounds} turns"
    f" A B A B (quartiles), of an epoch at most {MOST_EPOCHS};"
    " {threads} threads each, every contestant in a process of its own, every peer in an"
    " environment of its own. Processor time: of all threads, which other work on the machine disturbs less. Peak"
    " memory: largest resident set of the process, libraries included."
)


def main(arguments=None) -> int:
    """Runs the command; returns its exit status.

    Args:
        arguments: Command line without the program. Default: that of the process.
    """
    parser = MeasurementParser("python -m benchmarks.training", __doc__, rounds=15)
    parser.add_argument(
        "--case", action="append", choices=[*CASES, EPOCH, START], help="a case, more than once for several (all)"
    )
    parser.add_argument("--data", metavar="SPEC", help="the text of the case epoch, text:DIR:SRC-TGT")
    parser.add_argument("--contestant", action="append", default=[], help="how its name begins, such as zoo (all)")
    parser.add_count("threads", len(os.sched_getaffinity(0)), "of each contestant; default: as many as there are cores")
    parser.add_resuming()
    options = parser.parse_args(arguments)
    names = options.case or [*CASES, *([EPOCH] if options.data else []), START]
    if EPOCH in names and not options.data:
        parser.error("the case epoch needs --data.")
    settings = {"rounds": options.rounds, "threads": options.threads, "tiny": options.tiny}
    print(METHOD.format(**settings), flush=True)
    if options.tiny:
        print("\n**Tiny sizes: these numbers say only that it runs.**")
    for name in names:
        print(f"\n{_told(name, settings, options)}", flush=True)
    return 0


def _told(name, settings, options):
    """Returns the tables of a case, which is measured unless it was before."""
    if name == START:
        rounds = settings["rounds"]
        return start.table(kept("training/start", {"rounds": rounds}, lambda: start.measure(rounds), options.fresh))
    if name == EPOCH:
        case, settings = epoch_case(options.data), {**settings, "rounds": min(settings["rounds"], MOST_EPOCHS)}
    else:
        case = CASES[name]
    case = case.among(options.contestant)
    file = "-".join([f"training/{name}", *(re.sub(r"\W+", "_", each) for each in options.contestant)])
    groups = [*PRECISIONS, "fastest precision"]
    hangs_on = {**settings, "case": dataclasses.asdict(case), "pins": REQUIREMENTS, "groups": groups}
    found = kept(file, hangs_on, lambda: measure.measure(case, **settings), options.fresh, measure.is_complete)
    return report.table(case, found)


if __name__ == "__main__":
    sys.exit(main())
