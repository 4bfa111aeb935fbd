"""A process of its own for one contestant: it tells its memory once, and then one time for each line it is sent.

`python -m benchmarks.worker CASE CONTESTANT [--tiny]`; the parent reads JSON, a line each.
"""

import argparse
import contextlib
import json
import os
import sys
import time
from pathlib import Path

from benchmarks.cases import CASES
from benchmarks.growth_cases import GROWTH
from benchmarks.memory import extra_memory
from benchmarks.steps import Unavailable

ALL = {case.name: case for case in (*CASES.values(), *GROWTH.values())}
REPEATS = 2  # passes that the memory is taken over


def main(arguments=None) -> int:
    """Runs the command; returns its exit status.

    Args:
        arguments: Command line without the program. Default: that of the process.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worker", description=__doc__)
    parser.add_argument("case", choices=ALL)
    parser.add_argument("contestant")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args(arguments)
    # Some passes take 10 GB: if the memory runs out, this process is the one to end, and not a neighbour's.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    # Libraries print what they like; the answers go where standard output went.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(**values):
        print(json.dumps(values), file=answers, flush=True)

    contestant = ALL[options.case].contestant(options.contestant)
    try:
        step, grown = prepare(contestant, options.tiny)
    except Unavailable as error:
        tell(unavailable=str(error))
        return 0
    tell(extra_memory=grown)
    for _ in sys.stdin:
        begun = time.perf_counter()
        step()
        tell(seconds=time.perf_counter() - begun)
    return 0


def prepare(contestant, tiny):
    """Returns the contestant's pass and the bytes that it grows the process by."""
    # Starts up the libraries, so that what they keep for good is not the layer's.
    contestant.step(contestant.sizes.tiny())()
    step = contestant.step(contestant.sizes.tiny() if tiny else contestant.sizes)
    return step, extra_memory(lambda: [step() for _ in range(REPEATS)])


if __name__ == "__main__":
    sys.exit(main())
