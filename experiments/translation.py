"""Trains and tests translators for cells of experiments, with the same budget, by the commands for users.

Every model has 2.1 million weights within a tenth, with the recipe's vocabulary of 6,000 for both languages. Batch size
and peak rate are those with which the recipes were chosen, on validation data, for Transformers and recurrent models
alike; dropout is the recipe's. Experiments with the same model share its training and its only test.
"""

import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zoo
from experiments.experiment import Cell, Experiment, ExperimentRequest
from experiments.report import ROOT
from experiments.runs import final_metrics, rounds
from training.config.run_config import RunConfig
from training.tasks import get_task
from zoo.errors import InputError
from zoo.workdir import WorkDir

STEPS = 800
"""Steps of a full training, of at most 2,048 tokens on the longer side, padding included."""

QUICK_STEPS = 300
ROUNDS = 4
SECONDS_TO_END = 20
LABELS = {"bleu": "BLEU", "exact_match": "exact match"}
BEAM_SIZE = 5
BUDGET = {
    "training.batch_tokens": 2048,
    "training.learning_rate": 3e-3,
    "training.schedule": "constant",
    "training.cooldown": 0.4,
    "training.average_checkpoints": 1,
    "training.patience": 0,
    "training.precision": "float32",
    "training.cores": 1,
}
_RNNSEARCH = {
    "embedding_dim": 128,
    "units": 304,
    "encoder_units": 152,  # dot products need annotations as large as states
    "attention_units": 304,
    "readout_units": 128,
    "tied_embeddings": "all",
}
_SIZES: dict[str, dict[str, Any]] = {
    "rnnsearch": _RNNSEARCH,
    "pointer_generator": _RNNSEARCH,
    "rnn_encdec": {"embedding_dim": 128, "units": 288, "readout_units": 128, "tied_embeddings": "all"},
    "luong": {"embedding_dim": 176, "units": 176, "tied_embeddings": "all", "bidirectional": True},
    "convs2s_small": {"embedding_dim": 64, "units": 128},
}
_QUICK_SIZES: dict[str, dict[str, Any]] = {
    "rnnsearch": {"units": 64, "encoder_units": 32, "attention_units": 64, "embedding_dim": 32, "readout_units": 32},
    "rnn_encdec": {"units": 64, "embedding_dim": 32, "readout_units": 32},
    "transformer": {"num_layers": 2, "model_dim": 64, "intermediate_dim": 128},
}


def steps(request: ExperimentRequest) -> int:
    """Returns the steps of each training."""
    return request.steps or (QUICK_STEPS if request.quick else STEPS)


def data(request: ExperimentRequest) -> str:
    """Returns the SPEC to train on: the requested one, or the generated dates."""
    return request.data or "dates"


def settings(model: str, options: Mapping[str, Any], cell: Cell, request: ExperimentRequest) -> dict[str, Any]:
    """Returns the settings of a training, as for `--set`."""
    length = steps(request)
    family = next((name for name in _SIZES if model.startswith(name)), "transformer")
    sizes = (_QUICK_SIZES if request.quick else _SIZES).get(family, {})
    chosen = {f"model.{name}": value for name, value in {**sizes, **options}.items()}
    if data(request).startswith("text:"):
        chosen["data.lowercase"] = True  # as results on Multi30k are reported
    return {
        **BUDGET,
        **chosen,
        "training.max_steps": length,
        "training.eval_every": max(length // ROUNDS, 1),
        "training.warmup_steps": max(length // ROUNDS, 1),
        "training.seed": cell.seed,
    }


def trained(model: str, options: Mapping[str, Any], cell: Cell, request: ExperimentRequest) -> Path:
    """Trains a model in a process of its own, or resumes its training, and returns its work directory.

    The directory's name ends in a hash of data and settings, so that experiments can share a folder.
    """
    set_options = [f"{key}={value}" for key, value in settings(model, options, cell, request).items()]
    digest = hashlib.sha256(" ".join([data(request), *set_options]).encode()).hexdigest()[:8]
    words = [model, *(f"{name}={value}" for name, value in sorted(options.items())), f"seed={cell.seed}", digest]
    workdir = WorkDir(request.workdir.resolve() / "translators" / re.sub(r"[^\w.=-]+", "_", "_".join(words)))
    used = workdir.path / "used.json"
    if not used.exists():
        begun = len(rounds(workdir.path))
        new = ["--model", model, "--data", data(request), "--set", *set_options]
        usage = _run("training.train", "--workdir", str(workdir.path), *(["--resume"] if begun else new))
        # After a resume, the usage is that of the steps since the checkpoint.
        usage["steps"] = steps(request) * (ROUNDS - begun) / ROUNDS
        workdir.write_text(used, json.dumps(usage) + "\n")
    return workdir.path


def tested(path: Path, spec: str | None = None) -> dict[str, Any]:
    """Returns the metrics of the test split, also by length; a finished evaluation is not repeated."""
    spec = spec or RunConfig.of_workdir(WorkDir(path)).data.spec
    if not _evaluations(path, spec):
        options = ["--split", "test", "--beam_size", str(BEAM_SIZE), "--by", "length"]
        usage = _run("training.evaluate", str(path), "--data", spec, *options)
        for file, metrics in _evaluations(path, spec).items():
            WorkDir(path).write_text(file, json.dumps({**metrics, "test_seconds": usage["seconds"]}, indent=2) + "\n")
    return next(iter(_evaluations(path, spec).values()))


def _evaluations(path: Path, spec: str) -> dict[Path, dict[str, Any]]:
    """Returns the metrics by length that `training.evaluate` has written for some data, by file."""
    written = {file: json.loads(file.read_text(encoding="utf-8")) for file in (path / "evaluation").glob("*.json")}
    return {file: metrics for file, metrics in written.items() if metrics["data"] == spec and "by_length" in metrics}


def _run(module: str, *arguments: str) -> dict[str, float]:
    """Runs a command, and returns its processor time in seconds and its peak memory in megabytes."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, env=environment, stdout=sys.stderr)
    try:
        _, status, used = os.wait4(process.pid, 0)
    except BaseException:
        process.terminate()
        try:
            process.wait(timeout=SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()  # its checkpoints are written; it can hang when the interpreter shuts down
            process.wait()
        raise
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise InputError(f"{module} ended with {process.returncode}; its output is above.")
    return {"seconds": used.ru_utime + used.ru_stime, "megabytes": used.ru_maxrss / 1024}


def metrics(model: str, options: Mapping[str, Any], cell: Cell, request: ExperimentRequest) -> dict[str, float]:
    """Returns the metrics of a model in the table: quality, also by length, speed and memory."""
    path = trained(model, options, cell, request)
    test, used = tested(path), json.loads((path / "used.json").read_text(encoding="utf-8"))
    run = zoo.load(path)
    # Unknown if the process was killed between the end of the training and the writing of its usage.
    speed = {"symbols_per_second": used["steps"] * _tokens_per_step(path) / used["seconds"]} if used["steps"] else {}
    return {
        "weights": run.model.count_params(),
        "multiplications": zoo.cost(run.model, query_length=20, value_length=20).multiplications,
        "cross_entropy": final_metrics(path)["cross_entropy"],
        **qualities(test),
        **speed,
        "megabytes": used["megabytes"],
        **{name: test[name] for name in ("test_seconds",) if name in test},
    }


def qualities(test: Mapping[str, Any]) -> dict[str, float]:
    """Returns BLEU and exact match of a test, and BLEU by length as `bleu_from_N`."""
    result = {"bleu": test["bleu_lower_tokenized"], "exact_match": test["exact_match"]}
    for bucket in test["by_length"]["buckets"]:
        result[f"bleu_from_{bucket['from']}"] = bucket["bleu_lower_tokenized"]
    return result


def _tokens_per_step(path: Path) -> float:
    """Returns the mean number of target tokens in a batch of the training data, without padding."""
    config, run = RunConfig.of_workdir(WorkDir(path)), zoo.load(path)
    task, tokens = get_task(run.spec.task), config.training.batch_tokens
    batches = task.batches(config.data, config.open_data(), "train", run.tokenizer_files(), batch_tokens=tokens)
    return statistics.fmean(batches.batch_of(step)[1] for step in range(batches.pass_length()))


class TranslatorExperiment(Experiment):
    """Base of the experiments with translators, whose tables have one budget."""

    takes_data = True

    def budget(self, request: ExperimentRequest) -> dict[str, Any]:
        """See `Experiment`."""
        return {**super().budget(request), "steps": steps(request)}

    def setting(self, request: ExperimentRequest) -> str:
        """See `Experiment`."""
        length = steps(request)
        return (
            f"{super().setting(request)}\n\nEach training: {length:,} steps of {BUDGET['training.batch_tokens']:,} "
            f"tokens at most, padding included; Adam with a peak rate of {BUDGET['training.learning_rate']} for all, "
            f"reached after {length // ROUNDS} steps, falling to 0 over the last {BUDGET['training.cooldown']:.0%}; "
            "the recipe's dropout; float32 on one thread. Batch and rate are those of the recipes, chosen on "
            "validation data. Nothing was chosen on the test set, which was translated once, with a beam of "
            f"{BEAM_SIZE}; BLEU is sacreBLEU's on lower-cased text, “BLEU from 6 words” that of sources of 6 to 10 "
            "words and so on. Speed is per second of processor time, start and validation included; megabytes are "
            "the peak memory of the training. Multiplications are those of a forward pass over 20 tokens on each "
            "side (`zoo.cost`). "
            "Another seed, or more steps, can change the order of rows that are close."
        )
