"""Metrics of a trained work directory on a split of its data."""

import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import zoo
from training.config.initial_run import open_workdir
from training.config.options import DataConfig
from training.config.run_config import RunConfig, open_data
from training.data import Dataset
from training.evaluation.breakdown import KINDS, draw, grouped
from training.evaluation.reranking import REVERSE_WEIGHT, Reranked, check_advisers
from training.hardware.precision import use_xla
from training.loop.feed import ValidationFeed
from training.loop.model_card import note_evaluation, note_weights
from training.optimization.cross_entropy import MeanOverTokens, TokenCrossEntropy
from training.tasks import Task, get_task
from zoo.decoding_options import LANGUAGES, TranslationOptions, check_reranking, together
from zoo.errors import unknown_name
from zoo.inference import Run
from zoo.presets import PREFIX
from zoo.stored_weights import check_kind, round_weights
from zoo.workdir import WorkDir

# Options that are always reported, and their defaults.
_DECODING: dict[str, dict[str, Any]] = {"seq2seq": {"beam_size": 1, "length_penalty": 0.6}}
_PATHS = ("with", "reverse", "ensemble")


def _likelihood(run: Run, settings: DataConfig, task: Task[Any], data: Dataset[Any], split: str) -> dict[str, float]:
    """Returns the mean cross-entropy of a split in nats, with teacher forcing, and metrics derived from it."""
    # Without a number of steps, a round is one deterministic pass over the data.
    batches = task.batches(
        settings, data, split, run.tokenizer_files(), batch_tokens=4096, static_shapes=run.model.jit_compile
    )
    feed = ValidationFeed(batches)
    mean = run.model.evaluate(feed.dataset, callbacks=[feed], verbose=0, return_dict=True)["cross_entropy"]
    tokens = sum(batches.tokens.values())
    return {"cross_entropy": float(mean), **task.derived(float(mean), tokens, data.split(split))}


def evaluate(
    path: str | Path,
    spec: str | None = None,
    split: str = "test",
    weights: str = "float32",
    by: str | None = None,
    rerank: str | None = None,
    others: Sequence[str | Path] = (),
    reverse: str | Path | None = None,
    reverse_weight: float | None = None,
    ensemble: Sequence[str | Path] = (),
    source_language: str | None = None,
    target_language: str | None = None,
    report: Callable[[dict[str, Any]], None] = lambda metrics: None,
    **decoding: Any,
) -> dict[str, Any]:
    """Returns the metrics of a split, and writes them and the model's outputs into the work directory.

    The files in `evaluation/` are named after the split, the beam size and all options that differ from their default.
    A hash is appended for data that the model was not trained on. Each evaluation adds a line to the model card.

    Args:
        path: The work directory, or `"preset:NAME"`, into which nothing is written.
        spec: Data SPEC. Default: the model's training data.
        split: `train`, `val` or `test`.
        weights: The type that matrices of all models are rounded to first: `"float32"` (no rounding), `"bfloat16"` or
            `"int8"`, as in an export of such weights. The model card then has the change of the metrics, too.
        by: `"length"` or `"frequency"`: also compute metrics of groups of sources, see `training.evaluation.breakdown`,
            and draw them into `evaluation/`.
        rerank: One of `reranking.RERANKINGS`, to choose among the translations of a beam. Default: the first.
        others: Work directories of models whose translations are additional candidates of `rerank`, see `Reranked`.
        reverse: The work directory of a model of the reverse direction, whose scores `rerank` also uses.
        reverse_weight: The weight of `reverse`. Default: 0.2.
        ensemble: Work directories of translators that form an ensemble with this one, see `zoo.load`.
        source_language: Source language of a translator of many languages, see `zoo.load`.
        target_language: Its target language.
        report: Called with the metrics, before the picture is drawn.
        **decoding: Options of the run's `translate`, `classify` or `generate`.

    Raises:
        InputError: For a bad work directory, SPEC, split, kind of weights or `by`, or data of another task than the
            model's.
    """
    check_kind(weights)
    check_advisers(rerank, others, reverse, reverse_weight)
    weight = REVERSE_WEIGHT if reverse_weight is None else reverse_weight
    if by not in (None, *KINDS):
        raise unknown_name("kind of breakdown", str(by), KINDS)
    run = zoo.load(together(path, ensemble), source_language, target_language)
    config = RunConfig.of_workdir(open_workdir(str(path)))
    task = get_task(run.spec.task)
    is_own = spec in (None, config.data.spec)
    # Which examples are held out for validation depends on how many are read.
    data = config.open_data() if is_own else open_data(config.spec, str(spec))
    # Nothing is written into the installed package.
    workdir = None if str(path).startswith(PREFIX) else _writable(WorkDir(path))
    if "rules" in decoding:
        decoding = {"length_penalty": TranslationOptions(rules=decoding["rules"]).exponent(), **decoding}
    decoding = {**_DECODING.get(task.name, {}), **decoding}
    if rerank:
        check_reranking(rerank, decoding.get("beam_size", 1))
    other_runs = [zoo.load(other) for other in others]
    reverse_run = None if reverse is None else zoo.load(reverse)
    decoder: Any = Reranked(run, rerank, other_runs, reverse_run, weight) if rerank else run
    if decoding.get("shortlist"):
        for other in other_runs:
            _ = other.shortlist  # raises before decoding if it is missing or damaged
    selection: dict[str, Any] = {"rerank": rerank} if rerank else {}
    selection |= {name: code for name, code in zip(LANGUAGES, (source_language, target_language), strict=True) if code}
    if ensemble:
        selection["ensemble"] = ", ".join(map(str, ensemble))
    if others:
        selection["with"] = ", ".join(map(str, others))
    if reverse is not None:
        selection |= {"reverse": str(reverse), "reverse_weight": weight}
    groups = grouped(by, run.reader, task, data, split, lambda: data if is_own else config.open_data()) if by else None
    run.model.compile(loss=MeanOverTokens(), weighted_metrics=[TokenCrossEntropy()], jit_compile=use_xla("auto"))

    def name(weights: str) -> str:
        return _name(task, split, "" if is_own else data.spec, weights, {**decoding, **selection})

    def measure_group(numbers: list[int], hypotheses: list[str]) -> dict[str, float]:
        examples = data.split(split).take(numbers)
        group = dataclasses.replace(data, load_split=lambda _: examples)
        measured = task.measure(examples, [hypotheses[number] for number in numbers] if hypotheses else [], data.spec)
        measured |= _likelihood(run, config.data, task, group, split)
        return {name: value for name, value in measured.items() if isinstance(value, float)}

    def measure(weights: str) -> dict[str, Any]:
        options = {"data": data.spec, "split": split, "weights": weights, **decoding, **selection}
        metrics = {**options, "examples": len(data.split(split))}
        measured, hypotheses = task.evaluate(decoder, data, split, **decoding)
        metrics |= {**measured, **_likelihood(run, config.data, task, data, split)}
        if groups:
            metrics[f"by_{by}"] = groups.table(lambda numbers: measure_group(numbers, hypotheses))
        if workdir:
            texts = {"txt": "".join(f"{text}\n" for text in hypotheses), "json": json.dumps(metrics, indent=2) + "\n"}
            for suffix, text in texts.items():
                workdir.write_text(workdir.path / "evaluation" / f"{name(weights)}.{suffix}", text)
        return metrics

    metrics = unrounded = measure("float32")
    if workdir:
        note_evaluation(workdir, unrounded)
    if weights != "float32":
        for loaded in (run, *other_runs, reverse_run):
            if loaded is not None:
                round_weights(loaded.model, weights)
        metrics = measure(weights)
        if workdir:
            note_weights(workdir, data.spec, metrics, unrounded)
    report(metrics)
    if by and workdir:
        draw(metrics[f"by_{by}"], by, workdir.path / "evaluation" / f"{name(weights)}_by_{by}.png")
    return metrics


def _writable(workdir: WorkDir) -> WorkDir | None:
    """Returns a work directory, or `None` with a warning on standard error if it is read-only."""
    if os.access(workdir.path, os.W_OK):
        return workdir
    print(f"{workdir.path} cannot be written to: the metrics are only printed", file=sys.stderr)
    return None


def _name(task: Task[Any], split: str, other_spec: str, weights: str, decoding: Mapping[str, Any]) -> str:
    """Returns the name of the files of an evaluation, made of the data and the options."""
    defaults = _DECODING.get(task.name, {})
    words = [split, *([f"beam_{decoding['beam_size']}"] if "beam_size" in defaults else [])]
    words += [
        f"{key}_{_hash(value) if key in _PATHS else value}"
        for key, value in sorted(decoding.items())
        if key != "beam_size" and value != defaults.get(key)
    ]
    words += [_hash(other_spec)] if other_spec else []
    return "_".join([*words, *([weights] if weights != "float32" else [])])


def _hash(text: str) -> str:
    """Returns a short hash of a text that may contain characters not allowed in file names."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]
