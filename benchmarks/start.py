"""Measures the time from the start of Python to the names of the models, and to the first step of training."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.runner.process import ROOT, Failed, Process
from benchmarks.runner.report import Goal, Spread, goal_table, machine_and_commit

MODELS = ("rnnsearch", "transformer_tiny")
LIST_BOUND, FIRST_STEP_BOUND = 0.3, 20.0  # seconds
LIST_MODELS = """
import json, sys, time
begun = time.perf_counter()
import zoo
names = zoo.list_models()
print(json.dumps({"seconds": time.perf_counter() - begun, "names": len(names), "keras": "keras" in sys.modules}))
"""
TRAIN_ONE_STEP = """
import json, os, sys
from training import train
from training.loop import progress

def report_and_end(self, batch, logs=None):
    print(json.dumps({"loss": float(logs["loss"])}), flush=True)
    os._exit(0)  # the training ends after its first step

progress.Progress.on_train_batch_end = report_and_end
train.main(["--data", "dates", *sys.argv[1:]])
"""


def measure(rounds: int = 15, first_steps: int = 3) -> dict[str, Any]:
    """Returns the times, in seconds, of processes that list the models, and of those that train each model."""
    measurements: dict[str, Any] = {"where": machine_and_commit(), "list_models": [], "process": [], "first_step": {}}
    for number in tqdm(range(rounds + 1), "start: list_models()", leave=False, disable=None):
        begun = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", LIST_MODELS], cwd=ROOT, capture_output=True, text=True, check=True)
        seconds, answer = time.perf_counter() - begun, json.loads(done.stdout)
        if answer["keras"]:
            raise Failed("`zoo.list_models()` loads Keras")
        if number:  # the first process reads the files from the disk
            measurements["process"].append(seconds)
            measurements["list_models"].append(answer["seconds"])
    turns = [model for _ in range(first_steps) for model in MODELS]
    for model in tqdm(turns, "start: first step", leave=False, disable=None):
        for kind, seconds in zip(("seconds", "processor"), first_step(model), strict=True):
            measurements["first_step"].setdefault(model, {}).setdefault(kind, []).append(seconds)
    return measurements


def first_step(model: str) -> tuple[float, float]:
    """Returns the time from the start of `training.train` to its first step on `dates`, by clock and processors."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", TRAIN_ONE_STEP, "--model", model, "--workdir", str(Path(folder) / "run")]
        begun, processor = time.perf_counter(), _processor_time()
        with Process(command) as process:
            if set(process.receive()) != {"loss"}:
                raise Failed("the training ended before its first step")
            seconds = time.perf_counter() - begun
        return seconds, _processor_time() - processor


def _processor_time() -> float:
    """Returns the processor time of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def section(measurements: Mapping[str, Any]) -> str:
    """Returns the times as Markdown."""
    goals = [
        _goal("`import zoo` and `zoo.list_models()`", measurements["list_models"], bound=LIST_BOUND),
        _goal("the same, with the start and the end of Python", measurements["process"], bound=None),
        *(
            _goal(f"`{model}` on `dates`: from the start of `training.train` to its first step", **times)
            for model, times in measurements["first_step"].items()
        ),
    ]
    return "\n".join(["### Start", "", *goal_table("what", goals), "", f"{measurements['where']}."])


def _goal(
    what: str, seconds: Sequence[float], processor: Sequence[float] = (), bound: float | None = FIRST_STEP_BOUND
) -> Goal:
    spread = Spread.of(seconds)
    text = f"{spread.median:.2f} s ({spread.low:.2f}–{spread.high:.2f}), {len(seconds)} processes"
    text += f"; processor time {Spread.of(processor).median:.2f} s" if processor else ""
    if bound is None:
        return Goal(what, text)
    return Goal(what, text, f"≤ {bound} s", spread.median <= bound)
