"""What XLA makes of a training step on a mesh, without running it: operations, memory, and what devices send.

`KERAS_BACKEND=jax python -m benchmarks.compiled_step [--model NAME] [--mesh AXES] [--batch N] [--length N] [--remat]`

Devices that are not there can be pretended: XLA_FLAGS=--xla_force_host_platform_device_count=8 makes eight of a
processor. Sizes are those of one device.
"""

import argparse
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from training.config.mesh import parse_mesh
from training.hardware.mesh import Mesh
from training.optimization.rematerialization import rematerialize
from zoo.registry import create_model

_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "s8": 1, "u8": 1, "pred": 1}


def compile_step(model: keras.Model, source: np.ndarray, target: np.ndarray) -> Any:
    """Returns the compiled training step of a translator on JAX, with the layout that its weights have."""
    import jax

    model.compile(optimizer=keras.optimizers.Adam(), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.optimizer.build(model.trainable_variables)
    inputs = {"source": source, "target": target}
    mesh = keras.distribution.distribution()
    if mesh is not None:
        put = keras.distribution.distribute_tensor
        inputs = {name: put(each, mesh.get_data_layout(each.shape)) for name, each in inputs.items()}
        target = put(target, mesh.get_data_layout(target.shape))
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([variable.value for variable in group] for group in groups)
    return jax.jit(model.train_step, donate_argnums=0).lower(state, (inputs, target)).compile()


def sent_bytes(text: str) -> dict[str, float]:
    """Returns the bytes that a device sends in each kind of collective operation of a compiled program.

    A ring of k devices moves `2 (k − 1) / k` times the result of an all-reduce, `(k − 1) / k` times that of an
    all-gather, and `k − 1` times that of a reduce-scatter.
    """
    sent = dict.fromkeys(_COLLECTIVES, 0.0)
    for line in text.splitlines():
        found = re.search(rf"= (.*?) ({'|'.join(_COLLECTIVES)})(?:-start)?\(", line)
        if found is None:
            continue
        result, kind = found.groups()
        devices = _devices_of(line)
        share = {"all-reduce": 2 * (devices - 1) / devices, "reduce-scatter": devices - 1, "collective-permute": 1}
        sent[kind] += share.get(kind, (devices - 1) / devices) * _size(result)
    return {kind: size for kind, size in sent.items() if size}


def _devices_of(line: str) -> int:
    """Returns how many devices take part in a collective operation; XLA writes its groups in three ways."""
    of_mesh = re.search(r"replica_groups=mesh\[([^\]]*)\].*?\{([^}]*)\}", line)
    if of_mesh:
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", of_mesh.group(1))}
        return math.prod(sizes[name] for name in re.findall(r"'(\w+)'", of_mesh.group(2)))
    counted = re.search(r"replica_groups=\[(\d+),(\d+)\]", line)
    if counted:
        return int(counted.group(2))
    listed = re.search(r"replica_groups=\{\{([\d,]+)\}", line)
    if listed is None:
        raise ValueError(f"The groups of a collective operation are written in a way that is not known: {line[:200]}")
    return len(listed.group(1).split(","))


def _size(shapes: str) -> float:
    """Returns the bytes of what a program writes as `f32[2,3]{1,0}` or as a tuple of such."""
    found = re.findall(r"(\w+)\[([\d,]*)\]", shapes)
    return sum(_BYTES.get(kind, 4) * math.prod(int(size) for size in sizes.split(",") if size) for kind, sizes in found)


def report(
    name: str,
    axes: Mapping[str, int],
    batch: int,
    length: int,
    vocabulary: int,
    dtype: str = "float32",
    remat: bool = False,
) -> dict[str, Any]:
    """Returns what a step of a translator takes on each device of a mesh."""
    mesh = Mesh(axes, keras.distribution.list_devices()[: math.prod(axes.values())])
    with mesh.distribution().scope():
        model = create_model(name, source_vocab_size=vocabulary, target_vocab_size=vocabulary, dtype=dtype)
        if remat:
            rematerialize(model)
        texts = np.full((batch, length), 5, "int32")
        compiled = compile_step(model, texts, texts)
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    sent = sent_bytes(compiled.as_text())
    return {
        "model": name,
        "mesh": str(mesh),
        "dtype": dtype,
        "remat": remat,
        "weights": model.count_params(),
        "operations": cost.get("flops", math.nan),
        "bytes_accessed": cost.get("bytes accessed", math.nan),
        "arguments": memory.argument_size_in_bytes,
        "temporary": memory.temp_size_in_bytes,
        "sent": sum(sent.values()),
        "sent_by": sent,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled_step", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="transformer_tiny", help="a translator (transformer_tiny)")
    parser.add_argument("--mesh", default="data=1", help="as training.mesh (data=1)")
    parser.add_argument("--batch", type=int, default=64, help="sentences of all devices (64)")
    parser.add_argument("--length", type=int, default=16, help="symbols of each on either side (16)")
    parser.add_argument("--vocabulary", type=int, default=8000, help="symbols of each side (8000)")
    parser.add_argument("--dtype", default="float32", help="as of models, such as mixed_bfloat16 (float32)")
    parser.add_argument("--remat", action="store_true", help="as training.remat")
    options = parser.parse_args(arguments)
    if keras.backend.backend() != "jax":
        parser.error(f"set KERAS_BACKEND=jax; the backend is {keras.backend.backend()}")
    sizes = (options.batch, options.length, options.vocabulary)
    found = report(options.model, parse_mesh(options.mesh), *sizes, options.dtype, options.remat)
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
