"""Measures how trained translators are served: `python -m benchmarks.serving WORKDIR … --text FILE`.

For each work directory: latency, throughput, changes of version, memory, and what hostile requests get. The server is a
process of its own, and so are its clients.
"""

import os
import sys
import tempfile
from pathlib import Path

from benchmarks.command import MeasurementParser
from benchmarks.report import machine_and_commit
from zoo.startup import without_greeting

CASES = ("latency", "throughput", "swaps", "soak", "hostile")


def main(arguments=None) -> int:
    """Runs the command; returns its exit status."""
    parser = MeasurementParser("python -m benchmarks.serving", __doc__, rounds=640, unit="turns of latency")
    parser.add_argument("workdirs", nargs="+", type=Path, metavar="WORKDIR", help="a trained translator")
    parser.add_argument("--text", required=True, type=Path, help="source sentences, one a line")
    parser.add_argument("--case", action="append", choices=CASES, help="a case, more than once for several (all)")
    parser.add_argument("--seconds", type=float, help="how long throughput (60), swaps (120) and soak (600) last")
    parser.add_count("connections", 10_000, "that hostile opens and drops")
    parser.add_argument("--exports", type=Path, help="where exports are stored, and found the next time (nowhere)")
    options = parser.parse_args(arguments)
    if len({path.resolve().name for path in options.workdirs}) < len(options.workdirs):
        parser.error("work directories must have different names")
    for path in options.workdirs:
        if not path.is_dir():
            parser.error(f"{path} is no work directory")
    if not options.text.is_file() or not options.text.read_text(encoding="utf-8").strip():
        parser.error(f"{options.text} is no file of sentences")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the targets are about processors
    with without_greeting():
        from benchmarks.serving.cases import CASES as measures
        from benchmarks.serving.exports import Exports
    with tempfile.TemporaryDirectory() as folder:
        print(f"{machine_and_commit()}.", flush=True)
        for workdir in options.workdirs:
            exports = Exports(workdir, options.exports or Path(folder), options.text)
            print(f"\n## {exports.name}", flush=True)
            for name in options.case or CASES:
                print(f"\n{measures[name](exports, options)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
