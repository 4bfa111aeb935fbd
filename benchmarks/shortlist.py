"""Measures the gain of a shortlist: sentences a second of exports of untrained models with and without it.

`python -m benchmarks.shortlist [--model NAME] [--vocabulary N] [--shortlist N] [--rounds N] [--tiny]`

64 sentences of 16 tokens, 16 steps, greedy and beam search of 5. Each export is loaded like by a server, with parts of
32 sentences; all take turns in one process. Seconds are processor time, which other work on the machine affects less.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.decoding import BATCH, LENGTH, SEARCHES, random_words, write_untrained_workdir
from benchmarks.runner.command import MeasurementParser

TRANSLATIONS, ALWAYS = 50, 104


def write_shortlist(workdir: Path, tokens: int) -> None:
    """Writes a shortlist of random translations, so many that each batch needs the whole capacity."""
    from zoo.inference.shortlist import Shortlist
    from zoo.workdir import WorkDir

    table = np.random.default_rng(0).integers(4, tokens, (tokens, TRANSLATIONS)).astype(np.int32)
    Shortlist(table, np.arange(tokens, dtype=np.int32), min(ALWAYS, tokens)).save(WorkDir(workdir))


def measure(model: str, vocabulary: int, size: int, rounds: int, sentences: int = BATCH) -> dict[str, list[float]]:
    """Returns the processor time for all sentences, without a shortlist and with one, by search."""
    from benchmarks.zoo_adapter import load_signature
    from export.saved_model import export_saved_model

    inputs = random_words(vocabulary, sentences)
    exports: dict[str, list[Callable[[Any], Any]]] = {search: [] for search in SEARCHES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_untrained_workdir(folder / "run", inputs.tokenizer, model)
        write_shortlist(folder / "run", vocabulary)
        for search, beam_size in SEARCHES.items():
            for shortlist in (0, size):
                options = {"beam_size": beam_size, "max_length": LENGTH, "length_penalty": 0.0, "shortlist": shortlist}
                path = export_saved_model(folder / "run", folder / "base", dynamic_batching=True, nbest=1, **options)
                run = load_signature(path, ["text"], operation_threads=1, parallel_operations=1)
                (texts,) = run(inputs.texts)
                lengths = {len(text.split()) for text in texts}
                if lengths != {LENGTH}:
                    raise ValueError(f"Expected {LENGTH} tokens. Received: {lengths}.")
                exports[search].append(run)
        seconds: dict[str, list[list[float]]] = {search: [[], []] for search in SEARCHES}
        for _ in range(rounds):
            for search, runs in exports.items():
                for run, spent in zip(runs, seconds[search], strict=True):
                    begun = time.process_time()
                    run(inputs.texts)
                    spent.append(time.process_time() - begun)
    return {search: [statistics.median(spent) for spent in both] for search, both in seconds.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = MeasurementParser("shortlist", __doc__, rounds=9)
    parser.add_argument("--model", default="student_tiny", help="name of a translator of Transformer blocks")
    parser.add_count("vocabulary", 8_000, "tokens")
    parser.add_count("shortlist", 1_000, "tokens of a batch")
    parser.add_tiny()
    options = parser.parse_args(arguments)
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # like `export.serve`
    size, vocabulary, count = (16, 60, 4) if options.tiny else (options.shortlist, options.vocabulary, BATCH)
    seconds = measure(options.model, vocabulary, size, options.rounds, count)
    print("| model | vocabulary | search | all tokens | shortlist | |\n|---|---|---|---|---|---|")
    for search, (whole, short) in seconds.items():
        rates = f"{count / whole:,.0f} sentences/s | {size:,}: {count / short:,.0f} sentences/s | {whole / short:.2f}×"
        print(f"| `{options.model}` | {vocabulary:,} | {search} | {rates} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
