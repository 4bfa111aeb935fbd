"""Which precision a processor trains a model faster in: measured, where the machine does not tell, and remembered."""

import contextlib
import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import keras

from training.data.batching import Batches
from training.hardware.precision import MEASURED, processor_name, without_rewriting
from training.loop.prepare import PreparedRun
from training.loop.progress import announce
from zoo.registry import create_model

# Multiplications of a training that takes minutes, below which measuring would cost a noticeable share of it.
_WORTH_MEASURING = 1e14
_ROUNDS, _SECONDS = 5, 2.0
# bfloat16 has to be worth its rounding.
_GAIN = 0.95
_PRECISIONS = ("float32", "mixed_bfloat16")


def settle_precision(run: PreparedRun, batches: Batches) -> PreparedRun:
    """Returns a run with its precision, which is measured if it is still open and the training is long.

    Forward passes over the first batch are taken in turns; the quickest of each precision counts. Their ratio is close
    to that of whole steps, whose compilation would take three times as long. What was measured is remembered for the
    next run of the same model on the same machine. A shorter training is in float32.
    """
    if run.hardware.precision != MEASURED:
        return run
    precision = _measured_before(run) or _measure(run, batches) if _takes_minutes(run) else "float32"
    keras.utils.clear_session()  # else what is built next has other names
    return run.with_precision(precision)


def _takes_minutes(run: PreparedRun) -> bool:
    config, settings = run.config, run.config.training
    num_parameters: int = create_model(config.spec.name, **config.model).count_params()
    symbols = settings.batch_tokens * settings.accumulate_steps * settings.total_steps
    return 6 * num_parameters * symbols >= _WORTH_MEASURING


def _measured_before(run: PreparedRun) -> str | None:
    """Returns the precision that was measured for such a run on this machine, if any."""
    try:
        precision = _memory(run).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if precision not in _PRECISIONS:
        return None
    announce(f"{precision} was the faster one when it was measured last ({_memory(run)})")
    return precision


def _memory(run: PreparedRun) -> Path:
    """Returns the file that remembers what was measured for such a run, among Keras' own."""
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    machine = (platform.node(), processor_name(), run.hardware.cores, metadata.version("tensorflow"), keras.version())
    model = (run.config.spec.name, run.config.model, run.config.training.batch_tokens)
    key = hashlib.sha256(json.dumps([machine, model], sort_keys=True, default=str).encode()).hexdigest()[:16]
    return home / "attention_zoo" / f"precision-{run.config.spec.name}-{key}"


def _measure(run: PreparedRun, batches: Batches) -> str:
    begun = time.monotonic()
    announce("measuring the precisions; training.precision=float32 or mixed_bfloat16 leaves it out")
    models = {name: create_model(run.config.spec.name, dtype=name, **run.config.model) for name in _PRECISIONS}
    seconds = _quickest_passes(models, batches.batch_of(0)[0][0])
    precision = "mixed_bfloat16" if seconds["mixed_bfloat16"] < _GAIN * seconds["float32"] else "float32"
    times = ", ".join(f"{1000 * value:,.0f} ms in {name}" for name, value in seconds.items())
    announce(f"a forward pass takes {times}: {precision} (measured in {time.monotonic() - begun:.0f} s)")
    with contextlib.suppress(OSError):  # then the next run measures again
        _remember(_memory(run), precision)
    return precision


def _remember(path: Path, precision: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(precision, encoding="utf-8")
    temporary.replace(path)


def _quickest_passes(models: dict[str, keras.Model], inputs: Any) -> dict[str, float]:
    """Returns the seconds of the quickest forward pass of each model, after a first one that compiles it."""
    inputs = keras.tree.map_structure(keras.ops.convert_to_tensor, inputs)
    passes = {name: _forward_pass(model) for name, model in models.items()}
    seconds = dict.fromkeys(models, float("inf"))
    with without_rewriting():
        for forward in passes.values():
            forward(inputs)
        begun = time.monotonic()
        for _ in range(_ROUNDS):
            for name, forward in passes.items():
                start = time.perf_counter()
                forward(inputs)
                seconds[name] = min(seconds[name], time.perf_counter() - start)
            if time.monotonic() - begun > _SECONDS:
                break
    return seconds


def _forward_pass(model: keras.Model) -> Callable[[Any], Any]:
    import tensorflow as tf

    forward: Callable[[Any], Any] = tf.function(lambda inputs: model(inputs, training=True), autograph=False)
    return forward
