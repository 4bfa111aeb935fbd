"""Our training steps on JAX, those of `training.train`, on a batch that is always the same."""

import gzip
import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

import zoo
from benchmarks.gpu.serving import Answer, described, take_turns
from benchmarks.gpu.trace import kernels_of, write_kernels
from benchmarks.peers.batches import FIRST
from benchmarks.zoo_adapter import MANY, configure, fixed_batch
from training.config.resolve import resolve
from training.data.batching import DocumentBatches
from training.hardware.choice import Hardware
from training.hardware.compiled_step import lower_step, step_state
from training.loop.build import compile_model
from training.loop.feed import TrainingFeed

Task = Mapping[str, Any]
POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
PROFILE_LIMIT = 4 * 2**20
"""The largest number of bytes of a profile that is stored."""


class TranslatorStep:
    """A step of a translator: forward, backward, Adam and the metrics."""

    unit = "target tokens"

    def __init__(self, task: Task):
        self.model = _compiled(configure(task))
        self.batch = fixed_batch(task).batch_of(0)[0]
        self.tokens = task["batch"] * task["target_length"]
        cost = zoo.cost(self.model, task["target_length"], task["source_length"])
        self.operations = 3 * cost.flops * task["batch"]

    def lower(self) -> Any:
        return lower_step(self.model, self.batch)

    def measure(self, compiled: Any, task: Task) -> Answer:
        step, state, finish = self._steps(compiled)
        started = time.time()
        step()
        finish()
        first = time.time() - started
        seconds = take_turns(step, finish, task)
        answer = described(seconds, self.tokens, self.unit, self.operations, task["card"])
        loss = float(state["logs"]["loss"])
        return {**answer, "parameters": self.model.count_params(), "loss": loss, "first_step": first}

    def _steps(self, compiled: Any) -> tuple[Any, dict[str, Any], Any]:
        """Returns a function that takes a step, the state that it updates, and a function that waits for it."""
        batch = jax.device_put(keras.tree.map_structure(np.asarray, self.batch))
        state: dict[str, Any] = {"state": step_state(self.model), "logs": None}

        def step() -> None:
            state["logs"], state["state"] = compiled(state["state"], batch)

        return step, state, lambda: jax.block_until_ready(state["state"])


class LanguageModelStep(TranslatorStep):
    """A step of a causal language model."""

    unit = "tokens"

    def __init__(self, task: Task):
        words = [f"model.{name}={value}" for name, value in task["options"].items()]
        settings = {"precision": POLICIES[task["precision"]], "clip_norm": 0}
        settings["label_smoothing"] = task["label_smoothing"]
        words += [f"training.{name}={value}" for name, value in settings.items()]
        words.append(f"data.max_length={task['target_length'] - 1}")
        config = resolve(task["model"], "lines:none", words)
        sizes = {"vocab_size": task["vocabulary"], "max_length": task["target_length"]}
        self.model = _compiled(config.with_model(**sizes))
        rows = np.random.default_rng(0).integers(FIRST, task["vocabulary"], (task["batch"], task["target_length"]))
        self.batch = DocumentBatches(rows.astype("int32").tolist(), batch_tokens=MANY, steps=MANY).batch_of(0)[0]
        self.tokens = task["batch"] * task["target_length"]
        self.operations = 3 * zoo.cost(self.model, task["target_length"]).flops * task["batch"]


class Fit(TranslatorStep):
    """The same steps by Keras' `fit` and our feed, like in `training.train`, to measure the overhead."""

    def __init__(self, task: Task):
        super().__init__(task)
        self._task = task

    def lower(self) -> Any:
        return _Nothing()  # `fit` compiles itself

    def measure(self, compiled: Any, task: Task) -> Answer:
        steps = task["warm_up"] + task["turns"]
        feed, times = TrainingFeed(fixed_batch(self._task)), _Times([task["warm_up"], steps])
        self.model.fit(feed.dataset, callbacks=[feed, times], verbose=0, shuffle=False, steps_per_epoch=steps)
        began, ended = times.recorded
        return described([(ended - began) / task["turns"]], self.tokens, self.unit, self.operations, task["card"])


class Profile(TranslatorStep):
    """A trace of one step, and its kernels by their total time."""

    def measure(self, compiled: Any, task: Task) -> Answer:
        step, _, finish = self._steps(compiled)
        for _ in range(task["warm_up"]):
            step()
        finish()
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # Python's calls are most of a trace, and not those of the device
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder, profiler_options=options):
                step()
                finish()
            (trace,) = Path(folder).rglob("*.trace.json.gz")
            output = Path(task["folder"])
            kernels = kernels_of(json.loads(gzip.decompress(trace.read_bytes())))
            write_kernels(kernels, output / "profile.csv")
            is_small = trace.stat().st_size <= PROFILE_LIMIT
            if is_small:
                shutil.copy(trace, output / "profile.trace.json.gz")
        milliseconds = 1000 * sum(kernel.seconds for kernel in kernels)
        files = "profile.trace.json.gz and profile.csv" if is_small else "profile.csv; the trace is too large"
        return {"milliseconds": milliseconds, "remark": f"{len(kernels)} kinds of kernels in one step: {files}"}


class _Times(keras.callbacks.Callback):
    """Records the times after some numbers of steps, for which it waits."""

    def __init__(self, counts: list[int]):
        super().__init__()
        self.counts, self.recorded = counts, []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch + 1 in self.counts:
            jax.block_until_ready(logs)
            self.recorded.append(time.perf_counter())


class _Nothing:
    def as_text(self) -> str:
        return ""

    def compile(self) -> None:
        return None


def _compiled(config: Any) -> keras.Model:
    return compile_model(config, Hardware(config.training.precision, jit=True))
