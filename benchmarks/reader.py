"""Measures how fast one process reads token shards into length-bucketed batches: `python -m benchmarks.reader DIR`."""

import json
import time
from pathlib import Path

from benchmarks.runner.command import CommandParser
from benchmarks.runner.report import machine_and_commit
from training.data.batching import PairBatches
from training.data.shards.store import TokenShards


def measure(folder: Path, batch_tokens: int = 4096, batches: int = 2000) -> dict[str, float]:
    """Returns the times to open shards of pairs and to read an early and a late batch, and the rate of pairs."""
    begun, processor = time.perf_counter(), time.process_time()
    shards = TokenShards(folder)
    columns = shards.columns("train")
    reader = PairBatches(**columns, batch_tokens=batch_tokens, steps=1, seed=1, corpus=shards.by_length("train"))
    results = {"open_seconds": time.perf_counter() - begun, "open_processor_seconds": time.process_time() - processor}
    for name, step in (("step_10_seconds", 10), ("step_1000000_seconds", 1_000_000)):
        begun = time.perf_counter()
        reader.batch_of(step)
        results[name] = time.perf_counter() - begun
    begun, processor = time.perf_counter(), time.process_time()
    sentences = sum(len(reader.batch_of(step)[0][1]) for step in range(batches))
    results["pairs_per_second"] = sentences / (time.perf_counter() - begun)
    results["pairs_per_processor_second"] = sentences / (time.process_time() - processor)
    return results


def main() -> None:
    parser = CommandParser("reader", __doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="token shards of pairs")
    parser.add_count("batch_tokens", 4096, "largest number of tokens of a batch, including padding")
    arguments = parser.parse_args()
    print(json.dumps({**measure(arguments.folder, arguments.batch_tokens), "where": machine_and_commit()}))


if __name__ == "__main__":
    main()
