"""Metrics of a trained work directory on a split of its data."""

import json
import math
import time
from pathlib import Path

import zoo
from training.batching import PairBatches, for_fit
from training.data import SPLITS, load_data
from training.losses import SmoothedCrossEntropy, TokenCrossEntropy
from training.metrics import translation_metrics
from training.precision import use_xla
from training.trainer import encode_split
from zoo.errors import InputError
from zoo.run import Run
from zoo.workdir import WorkDir


def perplexity(run: Run, data, split: str) -> float:
    """Returns the perplexity per target symbol of a split, under teacher forcing.

    Args:
        run: The loaded work directory.
        data: The data.
        split: `train`, `val` or `test`.
    """
    run.model.compile(loss=SmoothedCrossEntropy(), weighted_metrics=[TokenCrossEntropy()], jit_compile=use_xla("auto"))
    source, target = encode_split(data, split, run.tokenizers)
    batches = PairBatches(source, target, batch_tokens=4096, static_shapes=run.model.jit_compile)
    return math.exp(run.model.evaluate(for_fit(batches), verbose=0, return_dict=True)["cross_entropy"])


def evaluate(path: str | Path, spec: str | None = None, split: str = "test", **decoding) -> dict[str, float | str]:
    """Translates a split, returns its metrics, and writes both under the work directory.

    Args:
        path: The work directory.
        spec: Data SPEC. Default: what the model was trained on.
        split: `train`, `val` or `test`.
        **decoding: Options of `Run.translate`.

    Raises:
        InputError: For a bad work directory, SPEC or split.
    """
    if split not in SPLITS:
        raise InputError(f"The split must be one of {', '.join(SPLITS)}. Received: {split!r}.")
    run = zoo.load(path)
    data = load_data(spec or run.config["data"]["spec"])
    pairs = data.split(split)
    started = time.monotonic()
    hypotheses = run.translate(pairs.source, **decoding)
    seconds = time.monotonic() - started
    metrics = {
        "split": split,
        "sentences": len(hypotheses),
        **decoding,
        **translation_metrics(hypotheses, pairs.target),
        "perplexity": perplexity(run, data, split),
        "decoding_seconds": round(seconds, 2),
    }
    workdir = WorkDir(path)
    name = f"{split}_beam_{decoding.get('beam_size', 1)}"
    workdir.write_text(workdir.path / "evaluation" / f"{name}.txt", "".join(f"{text}\n" for text in hypotheses))
    workdir.write_text(workdir.path / "evaluation" / f"{name}.json", json.dumps(metrics, indent=2) + "\n")
    return metrics
