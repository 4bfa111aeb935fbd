"""Measures memory and processor time of a translator's training step with and without `training.remat`.

`python -m benchmarks.rematerialization [--model NAME] [--batch N] [--length N] [--vocabulary N]`

Each is measured in a process of its own. Memory is the peak beyond that of the model and its optimizer before the first
step.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.runner.command import CommandParser
from benchmarks.runner.memory import peak_memory
from benchmarks.runner.process import ROOT

STEPS = 2


def measure(name: str, batch: int, length: int, vocabulary: int, remat: bool) -> dict[str, Any]:
    """Returns the peak of memory, in bytes, and the processor time of the faster of two steps, in seconds."""
    import keras
    import numpy as np

    from training.optimization.rematerialization import rematerialize
    from zoo.registry import create_model

    keras.utils.set_random_seed(1)
    model = create_model(name, source_vocab_size=vocabulary, target_vocab_size=vocabulary)
    if remat:
        rematerialize(model)
    model.compile(keras.optimizers.Adam(1e-4), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.optimizer.build(model.trainable_variables)
    texts = np.random.default_rng(0).integers(4, vocabulary, (batch, length)).astype("int32")
    before, seconds = peak_memory(), []
    for _ in range(STEPS):
        started = time.process_time()
        loss = float(model.train_on_batch({"source": texts, "target": texts}, texts))
        seconds.append(time.process_time() - started)
    return {"remat": remat, "bytes": peak_memory() - before, "seconds": min(seconds), "loss": loss}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = CommandParser("rematerialization", __doc__.splitlines()[0])
    parser.add_argument("--model", default="transformer_base", help="a translator of Transformer blocks")
    parser.add_count("batch", 32, "sentences")
    parser.add_count("length", 256, "tokens of each on either side")
    parser.add_count("vocabulary", 8000, "tokens of each side")
    parser.add_argument("--only", choices=("kept", "remat"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.only:
        sizes = (options.batch, options.length, options.vocabulary)
        print(json.dumps(measure(options.model, *sizes, options.only == "remat")))
        return 0
    words = sys.argv[1:] if arguments is None else arguments
    for half in ("kept", "remat"):
        command = [sys.executable, "-m", "benchmarks.rematerialization", *words, "--only", half]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        print(done.stdout, end="", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
