"""Measures which precision is faster for a model on a processor, and caches the result."""

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
from training.hardware.precision import MEASURED, without_rewriting
from training.loop.prepare import PreparedRun
from training.loop.progress import announce
from zoo.registry import create_model
from zoo.runtime.cores import processor

# Multiplications in a training of some minutes, compared with which the time of the measurement is negligible.
_WORTH_MEASURING = 1e14
_ROUNDS, _SECONDS = 5, 2.0
# The time in bfloat16 must be less than this share of that in float32, to outweigh its rounding.
_GAIN = 0.95
_PRECISIONS = ("float32", "mixed_bfloat16")


def settle_precision(run: PreparedRun, batches: Batches) -> PreparedRun:
    """Returns a run with its precision, which is measured if it is automatic and the training is long.

    The fastest forward passes over the first batch in both precisions are compared. Their ratio is close to that of
    whole steps, whose compilation would take three times as long. The result is cached for the next run of the same
    model on the same machine. Shorter trainings use float32.
    """
    if run.hardware.precision != MEASURED:
        return run
    precision = _cached(run) or _measure(run, batches) if _takes_minutes(run) else "float32"
    keras.utils.clear_session()  # otherwise the names of the next layers differ
    return run.with_precision(precision)


def _takes_minutes(run: PreparedRun) -> bool:
    config, settings = run.config, run.config.training
    num_parameters: int = create_model(config.spec.name, **config.model).count_params()
    tokens = settings.batch_tokens * settings.accumulate_steps * settings.total_steps
    return 6 * num_parameters * tokens >= _WORTH_MEASURING


def _cached(run: PreparedRun) -> str | None:
    """Returns the precision measured earlier for such a run on this machine, or `None`."""
    try:
        precision = _cache_file(run).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    if precision not in _PRECISIONS:
        return None
    announce(f"{precision} was faster in an earlier measurement ({_cache_file(run)})")
    return precision


def _cache_file(run: PreparedRun) -> Path:
    """Returns the file for the result of such a run, in Keras' folder."""
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    versions = metadata.version("tensorflow"), keras.version()
    machine = (platform.node(), processor("model name"), run.hardware.cores, *versions)
    model = (run.config.spec.name, run.config.model, run.config.training.batch_tokens)
    key = hashlib.sha256(json.dumps([machine, model], sort_keys=True, default=str).encode()).hexdigest()[:16]
    return home / "attention_zoo" / f"precision-{run.config.spec.name}-{key}"


def _measure(run: PreparedRun, batches: Batches) -> str:
    start_time = time.monotonic()
    announce("measuring which precision is faster; training.precision=float32 or mixed_bfloat16 skips this")
    models = {name: create_model(run.config.spec.name, dtype=name, **run.config.model) for name in _PRECISIONS}
    seconds = _fastest_passes(models, batches.batch_of(0)[0][0])
    precision = "mixed_bfloat16" if seconds["mixed_bfloat16"] < _GAIN * seconds["float32"] else "float32"
    times = ", ".join(f"{1000 * value:,.0f} ms in {name}" for name, value in seconds.items())
    announce(f"a forward pass takes {times}: {precision} (measured in {time.monotonic() - start_time:.0f} s)")
    with contextlib.suppress(OSError):  # without the file, the next run measures again
        _write_cache(_cache_file(run), precision)
    return precision


def _write_cache(path: Path, precision: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(precision, encoding="utf-8")
    temporary.replace(path)


def _fastest_passes(models: dict[str, keras.Model], inputs: Any) -> dict[str, float]:
    """Returns the seconds of the fastest forward pass of each model, after a first one that compiles it."""
    inputs = keras.tree.map_structure(keras.ops.convert_to_tensor, inputs)
    passes = {name: _forward_pass(model) for name, model in models.items()}
    seconds = dict.fromkeys(models, float("inf"))
    with without_rewriting():
        for forward in passes.values():
            forward(inputs)
        start_time = time.monotonic()
        for _ in range(_ROUNDS):
            for name, forward in passes.items():
                start = time.perf_counter()
                forward(inputs)
                seconds[name] = min(seconds[name], time.perf_counter() - start)
            if time.monotonic() - start_time > _SECONDS:
                break
    return seconds


def _forward_pass(model: keras.Model) -> Callable[[Any], Any]:
    import tensorflow as tf

    forward: Callable[[Any], Any] = tf.function(lambda inputs: model(inputs, training=True), autograph=False)
    return forward
