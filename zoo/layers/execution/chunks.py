"""A chunk of queries at a time, each with all keys, and once more in the backward pass."""

import functools
import operator

from keras import ops

from zoo.layers.core.dropout import seeds_of_parts
from zoo.layers.core.kernels import axis_size, checkpointed_map
from zoo.layers.execution.plan import chunk_budget


def attend(layer, query, memory, visible, bias, seed, names):
    """Returns those results of `layer.attend_rows` that `names` has."""
    visible = visible.computed()
    rows = {"query": query, **visible.rows(), **({} if bias is None else {"bias": bias})}

    def attend_rows(rows, memory, index):
        here, own = visible.at(rows), seed if seed is None else seeds_of_parts(seed, index)
        results = layer.attend_rows(rows["query"], memory, here, rows.get("bias"), own)
        if "seen" in names:
            results["seen"] = here.rows_of(results["seen"], layer.compute_dtype)
        return tuple(results[name] for name in names)

    size, weights, jit = chunk_size(layer, query, memory), layer.compare_weights(), layer.pair_size() > 1
    results = checkpointed_map(attend_rows, rows, memory, weights, len(names), layer.compute_dtype, size, jit)
    return dict(zip(names, results, strict=True))


def chunk_size(layer, query, memory):
    """Returns the number of queries in a chunk."""
    sizes = *ops.shape(query)[:-1], axis_size(memory["value"], -2), layer.pair_size()
    row_cost = functools.reduce(operator.mul, (*sizes[:-3], *sizes[-2:]))
    if isinstance(row_cost, int) and isinstance(query.shape[-2], int):
        return min(query.shape[-2], max(1, chunk_budget() // row_cost))
    rows = chunk_budget() // ops.maximum(1, row_cost)
    return ops.maximum(1, ops.minimum(sizes[-3], rows))
