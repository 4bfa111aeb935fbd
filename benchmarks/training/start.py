"""How long it takes from nothing to the names of the models, and to the first step of training."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.process import Failed, Process
from benchmarks.timing import ROOT, Spread, where

MODELS = ("rnnsearch", "transformer_tiny")
LIST_BOUND, FIRST_STEP_BOUND = 0.3, 20.0
LIST = """
import json, sys, time
begun = time.perf_counter()
import zoo
names = zoo.list_models()
print(json.dumps({"seconds": time.perf_counter() - begun, "names": len(names), "keras": "keras" in sys.modules}))
"""


def measure(rounds: int = 15, first_steps: int = 3) -> dict[str, Any]:
    """Returns the times, in seconds.

    Args:
        rounds: Processes that list the models.
        first_steps: Processes that train, for each model.
    """
    found: dict[str, Any] = {"where": where(), "list_models": [], "process": [], "first_step": {}}
    for _ in tqdm(range(rounds + 1), "start: list_models()", leave=False, disable=None):
        begun = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", LIST], cwd=ROOT, capture_output=True, text=True, check=True)
        found["process"].append(time.perf_counter() - begun)
        told = json.loads(done.stdout)
        if told["keras"]:
            raise Failed("`zoo.list_models()` loads Keras")
        found["list_models"].append(told["seconds"])
    for name in ("list_models", "process"):
        del found[name][0]  # it read the files into memory
    turns = [model for _ in range(first_steps) for model in MODELS]
    for model in tqdm(turns, "start: first step", leave=False, disable=None):
        for kind, seconds in zip(("seconds", "processor"), first_step(model), strict=True):
            found["first_step"].setdefault(model, {}).setdefault(kind, []).append(seconds)
    return found


def first_step(model: str) -> tuple[float, float]:
    """Returns the time from the start of `training.train` to the end of its first step on `dates`: on the clock, and
    of processors.

    Args:
        model: Name of the model.

    Raises:
        Failed: If there is no first step.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.training.first_step", model, str(Path(folder) / "run")]
        begun, processor = time.perf_counter(), _processor_time()
        with Process(command) as process:
            if set(process.answer()) != {"loss"}:
                raise Failed("what ended is not the first step")
            seconds = time.perf_counter() - begun
        return seconds, _processor_time() - processor


def _processor_time():
    """Returns the processor time of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(found: dict[str, Any]) -> str:
    """Returns the times as Markdown.

    Args:
        found: From `measure`.
    """
    rows = [
        _row("`import zoo` and `zoo.list_models()`", found["list_models"], bound=LIST_BOUND),
        _row("the same, with the start and the end of Python", found["process"], bound=None),
        *(
            _row(f"`{model}` on `dates`: from the start of `training.train` to its first step", **times)
            for model, times in found["first_step"].items()
        ),
    ]
    head = ["### Start", "", "| what | time | target | |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, "", f"{found['where']}."])


def _row(what, seconds, processor=None, bound=FIRST_STEP_BOUND):
    spread = Spread.of(seconds)
    told = f"{spread.median:.2f} s ({spread.low:.2f}–{spread.high:.2f}), {len(seconds)} processes"
    told += "" if processor is None else f"; processor time {Spread.of(processor).median:.2f} s"
    if bound is None:
        return f"| {what} | {told} | reported | |"
    return f"| {what} | {told} | ≤ {bound} s | {'met' if spread.median <= bound else 'missed'} |"
