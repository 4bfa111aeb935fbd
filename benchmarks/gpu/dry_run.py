"""XLA's programs of our training steps, without running them: kernels, bytes, types and memory.

If JAX's plugin for CUDA is installed (`pip install --no-deps jax-cuda13-plugin jax-cuda13-pjrt`, of JAX's version), the
steps are compiled for an H100 without having one; else for the processor, whose compiler fuses differently and does not
multiply bfloat16. Without a GPU, XLA does not autotune, and cuDNN's attention is left out.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before JAX is imported, whose plugin requires a GPU otherwise

import jax  # noqa: E402

from benchmarks.gpu import lengths, steps  # noqa: E402
from benchmarks.gpu.figure import OURS, Figure  # noqa: E402
from benchmarks.gpu.program import LARGE, Program, products  # noqa: E402
from training.data.batching import PairBatches  # noqa: E402
from training.hardware.compiled_step import lower_step, planned_peak  # noqa: E402
from zoo.layers.core import kernels  # noqa: E402
from zoo.layers.execution import plan  # noqa: E402

KINDS = {"translator": steps.TranslatorStep, "language_model": steps.LanguageModelStep}
TARGET = Path(__file__).with_name("h100.txtpb")
UNLIKED = ("transpose", "copy", "gather", "scatter", "sort", "convert", "rng-bit-generator", "while")
HEAVIEST = 25


def write_report(figures: Sequence[Figure], output: Path, tiny: bool) -> None:
    """Writes the counts of our training steps among the figures to `dry_run.json`, and prints most of them."""
    device, reports = target_device(), {}
    for figure in figures:
        if figure.contestant != OURS or figure.kind not in KINDS or figure.name == "first step":
            continue
        reports[figure.name] = report = {"device": device.device_kind, **describe(figure, device)}
        (output / "dry_run.json").write_text(json.dumps(reports, indent=2), encoding="utf-8")
        print(f"{figure.name}:")
        for name, value in report.items():
            if name not in ("heaviest", "kernels and gigabytes by part"):
                print(f"  {name}: {_text(value)}", flush=True)
    if not tiny:
        print(f"shapes of batches in an epoch: {_text(shapes_of_an_epoch())}")


def target_device() -> Any:
    """Returns a GPU, or a description of one to compile for, or the processor."""
    if jax.default_backend() == "gpu":
        return jax.devices()[0]
    from jax.experimental import topologies

    try:
        options = {"target_config": TARGET.read_text(encoding="utf-8"), "topology": "1x1x1"}
        return topologies.get_topology_desc(platform="cuda", **options).devices[0]
    except (NotImplementedError, RuntimeError):
        return jax.devices()[0]


def describe(figure: Figure, device: Any) -> dict[str, Any]:
    """Returns the counts of a training step that is compiled for a device."""
    step = KINDS[figure.kind](figure.task())
    with planned_for_gpu() if device.platform != "cpu" else nullcontext():
        lowered = lower_step(step.model, step.batch, device)
    compiled = lowered.compile()
    program, cost = Program(compiled.as_text()), compiled.cost_analysis() or {}
    weights = [tuple(variable.shape) for variable in step.model.trainable_variables]
    return {
        "operations, by our own count": step.operations,
        "operations, by XLA's": cost.get("flops"),
        "gigabytes accessed": cost.get("bytes accessed", 0) / 1e9,
        "peak of memory, gigabytes": planned_peak(compiled) / 1e9,
        "products as traced": products(lowered.as_text()),
        "kernels": len(program.kernels),
        "gigabytes read and written": sum(size for _, size in program.kernels) / 1e9,
        "kernels and gigabytes by part": program.parts(),
        "kernels by kind": program.kinds(),
        "operations, also within fusions": program.operations(UNLIKED),
        "gigabytes written, by type": {name: size / 1e9 for name, size in program.written().most_common(6)},
        f"float32 of {LARGE / 2**20:.0f} MiB or more, but for weights": program.large("f32", weights),
        "logits written, by type": program.logits(step.tokens, figure.work["vocabulary"]),
        "on the host": program.on_the_host(),
        "heaviest": program.heaviest(HEAVIEST),
    }


@contextmanager
def planned_for_gpu() -> Iterator[None]:
    """Makes layers choose the same paths as on a GPU during the block; XLA computes those of cuDNN."""
    with (
        mock.patch.object(kernels, "has_accelerator", lambda: True),
        mock.patch.object(kernels, "has_fused_attention", lambda: True),
        mock.patch.object(plan, "has_fused_attention", lambda: True),
    ):
        yield


def shapes_of_an_epoch(pairs: int = 29_000, batch_tokens: int = 32_768) -> dict[str, int]:
    """Returns the number of batches of each shape in an epoch of sentences of Multi30k's lengths."""
    rows = [[np.full(length, 5) for length in lengths.draw(pairs, seed)] for seed in range(2)]
    batches = PairBatches(*rows, batch_tokens=batch_tokens, static_shapes=True)
    counts: Counter[str] = Counter()
    for step in range(len(batches)):
        (inputs, outputs, _), _ = batches.batch_of(step)
        counts[f"{len(outputs)} × ({inputs['source'].shape[1]} + {outputs.shape[1]})"] += 1
    return counts


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(item)}" for name, item in list(value.items())[:20])
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
