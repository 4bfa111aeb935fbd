"""Compiles a training step on JAX and analyses it: operations, memory, and bytes sent between devices."""

import math
import re
from typing import Any

import keras

_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "s8": 1, "u8": 1, "pred": 1}


def compile_step(model: keras.Model, batch: tuple[Any, ...]) -> Any:
    """Returns the compiled training step of a compiled model on JAX; see `lower_step`."""
    return lower_step(model, batch).compile()


def step_state(model: keras.Model) -> tuple[list[Any], ...]:
    """Returns the values that a training step on JAX takes and replaces."""
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    return tuple([variable.value for variable in group] for group in groups)


def lower_step(model: keras.Model, batch: tuple[Any, ...], device: Any = None) -> Any:
    """Returns the traced training step of a compiled model on JAX, with the layout of its weights.

    Compiled, it takes `step_state(model)`, whose buffers are donated, and a batch, and returns logs and the new state.

    Args:
        model: The model, whose optimizer is built.
        batch: Arrays of the shapes of a batch of `fit`: inputs, outputs and optionally their weights.
        device: The device to compile for; default: the devices of this machine. It need not exist, see
            `jax.experimental.topologies`.
    """
    import jax

    mesh = keras.distribution.distribution()
    if mesh is not None:
        put = keras.distribution.distribute_tensor
        batch = keras.tree.map_structure(lambda array: put(array, mesh.get_data_layout(array.shape)), batch)
    model._symbolic_build(data_batch=batch)  # creates the variables of metrics, as `fit` does
    arguments = step_state(model), batch
    if device is not None:
        sharding = jax.sharding.SingleDeviceSharding(device)
        arguments = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), arguments)
    return jax.jit(model.train_step, donate_argnums=0).lower(*arguments)


def planned_peak(compiled: Any) -> int:
    """Returns the peak memory of a compiled program in bytes, by XLA's own plan, its arguments included.

    Results reuse the memory of donated arguments.
    """
    memory = compiled.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return int(held + memory.temp_size_in_bytes)


def step_cost(compiled: Any) -> dict[str, Any]:
    """Returns the costs of a compiled step for each device, by XLA's own analysis.

    Returns:
        `operations` (additions and multiplications), `bytes_accessed`, the bytes of its `arguments` (weights, optimizer
        and batch), its `temporary` ones, and the `peak` of both and of its results, which reuse the memory of
        arguments. Further the bytes that a device sends, `sent`, and `sent_by` kind of operation.
    """
    memory, cost, sent = compiled.memory_analysis(), compiled.cost_analysis(), sent_bytes(compiled.as_text())
    return {
        "operations": cost.get("flops", math.nan),
        "bytes_accessed": cost.get("bytes accessed", math.nan),
        "arguments": memory.argument_size_in_bytes,
        "temporary": memory.temp_size_in_bytes,
        "peak": planned_peak(compiled),
        "sent": sum(sent.values()),
        "sent_by": sent,
    }


def sent_bytes(text: str) -> dict[str, float]:
    """Returns the bytes that a device sends in each kind of collective operation of a compiled program.

    A ring of k devices moves `2 (k − 1) / k` times the result of an all-reduce, `(k − 1) / k` times that of an
    all-gather, and `k − 1` times that of a reduce-scatter.
    """
    sent = dict.fromkeys(_COLLECTIVES, 0.0)
    for line in text.splitlines():
        match = re.search(rf"= (.*?) ({'|'.join(_COLLECTIVES)})(?:-start)?\(", line)
        if match is None:
            continue
        result, kind = match.groups()
        devices = _devices_of(line)
        share = {"all-reduce": 2 * (devices - 1) / devices, "reduce-scatter": devices - 1, "collective-permute": 1}
        sent[kind] += share.get(kind, (devices - 1) / devices) * _size(result)
    return {kind: size for kind, size in sent.items() if size}


def _devices_of(line: str) -> int:
    """Returns the number of devices in a collective operation; XLA writes its groups in three ways."""
    of_mesh = re.search(r"replica_groups=mesh\[([^\]]*)\].*?\{([^}]*)\}", line)
    if of_mesh:
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", of_mesh.group(1))}
        return math.prod(sizes[name] for name in re.findall(r"'(\w+)'", of_mesh.group(2)))
    counted = re.search(r"replica_groups=\[(\d+),(\d+)\]", line)
    if counted:
        return int(counted.group(2))
    listed = re.search(r"replica_groups=\{\{([\d,]+)\}", line)
    if listed is None:
        raise ValueError(f"The groups of a collective operation have an unknown format. Received: {line[:200]}")
    return len(listed.group(1).split(","))


def _size(shapes: str) -> float:
    """Returns the bytes of a shape such as `f32[2,3]{1,0}`, or of a tuple of shapes."""
    arrays = re.findall(r"(\w+)\[([\d,]*)\]", shapes)
    return sum(_BYTES.get(kind, 4) * math.prod(int(n) for n in sizes.split(",") if n) for kind, sizes in arrays)
