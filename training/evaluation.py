"""Metrics of a trained work directory on a split of its data."""

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zoo
from training.config.initial_run import open_workdir
from training.config.options import DataConfig
from training.config.run_config import RunConfig, open_data
from training.data import Dataset
from training.hardware.precision import use_xla
from training.loop.feed import ValidationFeed
from training.model_card import note_evaluation, note_weights
from training.optimization.cross_entropy import MeanOverSymbols, TokenCrossEntropy
from training.tasks import Task, get_task
from zoo.inference import Run
from zoo.presets import PREFIX
from zoo.stored_weights import check_kind, round_weights
from zoo.workdir import WorkDir

# Options that are named in any case, and their defaults.
_DECODING: dict[str, dict[str, Any]] = {"seq2seq": {"beam_size": 1, "length_penalty": 0.6}}


def cross_entropy(run: Run, settings: DataConfig, task: Task[Any], data: Dataset[Any], split: str) -> tuple[float, int]:
    """Returns the mean cross-entropy of a split in nats, with teacher forcing, and its number of symbols."""
    run.model.compile(loss=MeanOverSymbols(), weighted_metrics=[TokenCrossEntropy()], jit_compile=use_xla("auto"))
    # Without steps in a round this is one pass over the data, in which nothing is drawn.
    batches = task.batches(
        settings, data, split, run.tokenizer_files(), batch_tokens=4096, static_shapes=run.model.jit_compile
    )
    feed = ValidationFeed(batches)
    mean = run.model.evaluate(feed.dataset, callbacks=[feed], verbose=0, return_dict=True)["cross_entropy"]
    return float(mean), sum(batches.symbols.values())


def evaluate(
    path: str | Path, spec: str | None = None, split: str = "test", weights: str = "float32", **decoding: Any
) -> dict[str, Any]:
    """Returns the metrics of a split, and writes them and the model's answers under the work directory.

    The files in `evaluation/` are named after the split, the beam size and all options without their default; those of
    data that the model was not trained on end in a number. The model card gets a line for each.

    Args:
        path: The work directory, or `"preset:NAME"`, for which nothing is written.
        spec: Data SPEC. Default: what the model was trained on.
        split: `train`, `val` or `test`.
        weights: What matrices are rounded to first: `"float32"` (no rounding), `"bfloat16"` or `"int8"`, as in an
            export of such weights. What that costs is then written to the model card.
        **decoding: Options of the run's `translate`, `classify` or `generate`.

    Raises:
        InputError: For a bad work directory, SPEC, split or kind of weights, or data of another task than the model's.
    """
    check_kind(weights)
    run = zoo.load(path)
    config = RunConfig.of_workdir(open_workdir(str(path)))
    task = get_task(run.spec.task)
    own = spec in (None, config.data.spec)
    # Which examples are held out for validation depends on how many are read.
    data = config.open_data() if own else open_data(config.spec, str(spec))
    # Nothing is written into the installed package.
    workdir = None if str(path).startswith(PREFIX) else _writable(WorkDir(path))
    decoding = {**_DECODING.get(task.name, {}), **decoding}

    def measure(weights: str) -> dict[str, Any]:
        name = _name(task, split, "" if own else data.spec, weights, decoding)
        how = {"data": data.spec, "split": split, "weights": weights, **decoding}
        metrics = {**how, "examples": len(data.split(split))}
        measured, hypotheses = task.evaluate(run, data, split, **decoding)
        mean, symbols = cross_entropy(run, config.data, task, data, split)
        metrics |= {**measured, "cross_entropy": mean, **task.derived(mean, symbols, data.split(split))}
        if workdir:
            texts = {"txt": "".join(f"{text}\n" for text in hypotheses), "json": json.dumps(metrics, indent=2) + "\n"}
            for suffix, text in texts.items():
                workdir.write_text(workdir.path / "evaluation" / f"{name}.{suffix}", text)
        return metrics

    unrounded = measure("float32")
    if workdir:
        note_evaluation(workdir, unrounded)
    if weights == "float32":
        return unrounded
    round_weights(run.model, weights)
    rounded = measure(weights)
    if workdir:
        note_weights(workdir, data.spec, rounded, unrounded)
    return rounded


def _writable(workdir: WorkDir) -> WorkDir | None:
    """Returns a work directory, `None` where nothing may be written into it; standard error says so."""
    if os.access(workdir.path, os.W_OK):
        return workdir
    print(f"{workdir.path} cannot be written to: the metrics are printed alone", file=sys.stderr)
    return None


def _name(task: Task[Any], split: str, other_spec: str, weights: str, decoding: Mapping[str, Any]) -> str:
    """Returns the name of the files of an evaluation, which differs with the data and the options."""
    defaults = _DECODING.get(task.name, {})
    words = [split, *([f"beam_{decoding['beam_size']}"] if "beam_size" in defaults else [])]
    words += [
        f"{key}_{value}" for key, value in sorted(decoding.items()) if key != "beam_size" and value != defaults.get(key)
    ]
    if other_spec:  # hashed, since it has characters that the name of a file may not have
        words.append(hashlib.sha256(other_spec.encode()).hexdigest()[:8])
    return "_".join([*words, *([weights] if weights != "float32" else [])])
