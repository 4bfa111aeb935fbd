"""What XLA makes of a training step on JAX, without running it: operations, memory, and what devices send."""

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
    """Returns the training step of a compiled model on JAX, traced, with the layout that its weights have.

    Compiled, it takes `step_state(model)`, which it uses up, and a batch, and returns the logs and the new state.

    Args:
        model: The model, whose optimizer is built.
        batch: Arrays of the size of a batch, as `fit` gets it: inputs, outputs and perhaps their weights.
        device: What it is compiled for, if not for the devices that are here; it need not exist, see
            `jax.experimental.topologies`.
    """
    import jax

    mesh = keras.distribution.distribution()
    if mesh is not None:
        put = keras.distribution.distribute_tensor
        batch = keras.tree.map_structure(lambda each: put(each, mesh.get_data_layout(each.shape)), batch)
    model._symbolic_build(data_batch=batch)  # as `fit` does: else metrics have no variables yet
    arguments = step_state(model), batch
    if device is not None:
        place = jax.sharding.SingleDeviceSharding(device)
        arguments = jax.tree.map(lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=place), arguments)
    return jax.jit(model.train_step, donate_argnums=0).lower(*arguments)


def planned_peak(compiled: Any) -> int:
    """Returns the bytes that a compiled program has in memory at most, by XLA's own plan, its arguments included.

    Results take the place of arguments where they can.
    """
    memory = compiled.memory_analysis()
    kept = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return int(kept + memory.temp_size_in_bytes)


def step_cost(compiled: Any) -> dict[str, Any]:
    """Returns what a compiled step costs each device, by XLA's own analysis.

    Returns:
        `operations` (additions and multiplications), `bytes_accessed`, the bytes of its `arguments` (weights, optimizer
        and batch), its `temporary` ones, the `peak` of both and of its results, which take the place of arguments where
        they can, and the bytes that a device sends, `sent`, and `sent_by` kind of operation.
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
