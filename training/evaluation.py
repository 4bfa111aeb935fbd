"""Metrics of a trained work directory on a split of its data."""

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import zoo
from training.config.run_config import Config, check_task
from training.data import Dataset, load_data
from training.data.batching import for_fit
from training.hardware.precision import use_xla
from training.model_card import note_evaluation, note_weights
from training.optimization.losses import SmoothedCrossEntropy, TokenCrossEntropy
from training.tasks import Task, get_task
from zoo.inference import Run
from zoo.presets import PREFIX
from zoo.stored_weights import check_kind, round_weights
from zoo.workdir import WorkDir

# Options that the files say in any case.
_DECODING: dict[str, dict[str, Any]] = {"seq2seq": {"beam_size": 1, "length_penalty": 0.6}}


def cross_entropy(run: Run, config: Config, task: Task, data: Dataset, split: str) -> tuple[float, int]:
    """Returns the mean cross-entropy of a split in nats, under teacher forcing, and the number of symbols it is over.

    Args:
        run: The loaded work directory.
        config: Its configuration.
        task: Its task.
        data: The data.
        split: `train`, `val` or `test`.
    """
    run.model.compile(loss=SmoothedCrossEntropy(), weighted_metrics=[TokenCrossEntropy()], jit_compile=use_xla("auto"))
    # In one pass: without steps in a round nothing is drawn.
    batches = task.batches(
        config, data, split, run.tokenizer_files(), batch_tokens=4096, static_shapes=run.model.jit_compile
    )
    mean = run.model.evaluate(for_fit(batches), verbose=0, return_dict=True)["cross_entropy"]
    return float(mean), sum(batches.symbols.values())


def evaluate(
    path: str | Path, spec: str | None = None, split: str = "test", weights: str = "float32", **decoding
) -> dict[str, Any]:
    """Returns the metrics of a split, and writes them and the model's answers under the work directory.

    The files in `evaluation/` are called after the split, the beam size and what else is not the usual; data that the
    model was not trained on are told apart by a number. The model card gets a line of each.

    Args:
        path: The work directory, or `"preset:NAME"`, for which nothing is written.
        spec: Data SPEC. Default: what the model was trained on.
        split: `train`, `val` or `test`.
        weights: What matrices are rounded to first: `"float32"` (they stay as they are), `"bfloat16"` or `"int8"`, as
            in an export of such weights. What that costs is then written to the model card.
        **decoding: Options of the run's `translate`, `classify` or `generate`.

    Raises:
        InputError: For a bad work directory, SPEC, split or kind of weights, or data of another task than the model's.
    """
    check_kind(weights)
    run = zoo.load(path)
    config = Config.from_dict(run.config)
    task = get_task(run.spec.task)
    own = spec in (None, config.data.spec)
    # What is held out for validation hangs on how many examples are read.
    data = load_data(
        spec or config.data.spec,
        max_examples=config.data.max_examples if own else 0,
        check_task=partial(check_task, run.spec.name, spec or config.data.spec),
    )
    # What is installed stays as it is.
    workdir = None if str(path).startswith(PREFIX) else _writable(WorkDir(path))
    decoding = {**_DECODING.get(task.name, {}), **decoding}

    def measure(weights: str) -> dict[str, Any]:
        name = _name(task, split, "" if own else data.spec, weights, decoding)
        how = {"data": data.spec, "split": split, "weights": weights, **decoding}
        metrics = {**how, "examples": len(data.split(split))}
        found, hypotheses = task.evaluate(run, data, split, **decoding)
        mean, symbols = cross_entropy(run, config, task, data, split)
        metrics |= {**found, "cross_entropy": mean, **task.derived(mean, symbols, data.split(split))}
        if workdir:
            texts = {"txt": "".join(f"{text}\n" for text in hypotheses), "json": json.dumps(metrics, indent=2) + "\n"}
            for suffix, text in texts.items():
                workdir.write_text(workdir.path / "evaluation" / f"{name}.{suffix}", text)
        return metrics

    whole = measure("float32")
    if workdir:
        note_evaluation(workdir, whole)
    if weights == "float32":
        return whole
    round_weights(run.model, weights)
    rounded = measure(weights)
    if workdir:
        note_weights(workdir, data.spec, rounded, whole)
    return rounded


def _writable(workdir: WorkDir) -> WorkDir | None:
    """Returns a work directory, `None` where nothing may be written into it; standard error says so."""
    if os.access(workdir.path, os.W_OK):
        return workdir
    print(f"{workdir.path} cannot be written to: the metrics are printed alone", file=sys.stderr)
    return None


def _name(task: Task, split: str, other_spec: str, weights: str, decoding: Mapping[str, Any]) -> str:
    """Returns what the files of an evaluation are called: each data and each options have files of their own."""
    usual = _DECODING.get(task.name, {})
    parts = [split, *([f"beam_{decoding['beam_size']}"] if "beam_size" in usual else [])]
    parts += [
        f"{key}_{value}" for key, value in sorted(decoding.items()) if key != "beam_size" and value != usual.get(key)
    ]
    if other_spec:  # which holds what no name of a file may
        parts.append(hashlib.sha256(other_spec.encode()).hexdigest()[:8])
    return "_".join([*parts, *([weights] if weights != "float32" else [])])
