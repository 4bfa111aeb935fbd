"""Measures how trained translators are served: `python -m benchmarks.serving WORKDIR … --text FILE`.

For each work directory: the start of a server, one sentence and many clients beside CTranslate2 behind a server of its
own; latency over gRPC beside the same call in process, throughput, changes of version, memory, and hostile requests.
The server runs in a process of its own, and so do its clients.
"""

import os
import sys
import tempfile
from pathlib import Path

from benchmarks.runner.command import MeasurementParser
from benchmarks.runner.report import machine_and_commit
from zoo.runtime.startup import without_greeting

CASES = ("start", "sentence", "clients", "latency", "throughput", "swaps", "soak", "hostile")


def main(arguments=None) -> int:
    """Runs the command; returns its exit status."""
    parser = MeasurementParser("serving", __doc__, rounds=640, unit="turns of latency")
    parser.add_argument("workdirs", nargs="+", type=Path, metavar="WORKDIR", help="a trained translator")
    parser.add_argument("--text", required=True, type=Path, help="source sentences, one a line")
    parser.add_argument("--case", action="append", choices=CASES, help="a case, more than once for several (all)")
    parser.add_argument("--seconds", type=float, help="how long throughput (60), swaps (120) and soak (600) last")
    parser.add_count("connections", 10_000, "that hostile opens and drops")
    parser.add_count("starts", 5, "times that each server is started")
    parser.add_count("turns", 10, "times that each sentence is sent")
    parser.add_argument("--load_seconds", type=float, default=10.0, help="of each number of clients, and rate (10)")
    parser.add_argument("--plot", type=Path, help="file for a picture of the waits of clients")
    parser.add_argument("--exports", type=Path, help="folder that keeps the exports for the next run (none)")
    options = parser.parse_args(arguments)
    if len({path.resolve().name for path in options.workdirs}) < len(options.workdirs):
        parser.error("work directories must have different names")
    for path in options.workdirs:
        if not path.is_dir():
            parser.error(f"{path} is no work directory")
    if not options.text.is_file() or not options.text.read_text(encoding="utf-8").strip():
        parser.error(f"{options.text} is no file of sentences")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the goals are those of processors
    with without_greeting():
        from benchmarks.serving import beside_ctranslate2, cases
        from benchmarks.serving.exports import Exports
    measures = {**beside_ctranslate2.CASES, **cases.CASES}
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
