"""Attention of some queries at a time, recomputed in the backward pass: of chunks, or of blocks with windows."""

import dataclasses
import functools
import operator

from keras import ops

from zoo.layers.core.dropout import seeds_of_parts
from zoo.layers.core.graphs import axis_size
from zoo.layers.core.loops import checkpointed_map
from zoo.layers.execution.plan import chunk_budget, windows_at_a_time


def attend_in_chunks(layer, query, memory, visibility, bias, seed, names):
    """Returns the results of `layer.attend_rows` in `names`, for a chunk of queries with all keys at a time."""
    visibility = visibility.computed()
    rows = {"query": query, **visibility.rows(), **({} if bias is None else {"bias": bias})}

    def attend_rows(rows, memory, index):
        chunk_visibility = visibility.of_rows(rows)
        chunk_seed = seed if seed is None else seeds_of_parts(seed, index)
        results = layer.attend_rows(rows["query"], memory, chunk_visibility, rows.get("bias"), chunk_seed)
        if "any_visible" in names:
            results["any_visible"] = chunk_visibility.rows_of(results["any_visible"], layer.compute_dtype)
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


def attend_in_windows(layer, query, memory, visibility, bias, seed, names):
    """Returns the results of `layer.attend_rows` in `names`, for a few blocks of queries with their windows at a time.

    Blocks are stacked on the batch axis.
    """
    masks = {name: getattr(visibility, name) for name in ("query_mask", "key_mask", "pair_mask")}
    # A pair mask that all blocks share is not split.
    masks = {name: mask for name, mask in masks.items() if mask is not None and mask.shape[0] != 1}
    tensors = {"query": query, **memory, **masks, **({} if bias is None else {"bias": bias})}
    shapes = {name: ops.shape(tensor)[1:] for name, tensor in tensors.items()}

    def attend_blocks(rows, shared, index):
        blocks = {name: ops.reshape(row, (-1, *shapes[name])) for name, row in rows.items()}
        chunk_visibility = dataclasses.replace(visibility, **{name: blocks[name] for name in masks})
        memory = {name: blocks[name] for name in ("key", "value")}
        chunk_seed = None if seed is None else seeds_of_parts(seed, index)
        results = layer.attend_rows(blocks["query"], memory, chunk_visibility, blocks.get("bias"), chunk_seed)
        results["any_visible"] = ops.cast(results["any_visible"], layer.compute_dtype)
        return tuple(_flatten_blocks(results[name]) for name in names)

    num_blocks, size = ops.shape(query)[0], windows_at_a_time(layer, query.shape, memory["value"].shape[-2])
    size = min(num_blocks, size) if isinstance(num_blocks, int) else ops.clip(num_blocks, 1, size)
    rows, weights = {name: _flatten_blocks(tensor) for name, tensor in tensors.items()}, layer.compare_weights()
    results = checkpointed_map(attend_blocks, rows, {}, weights, len(names), layer.compute_dtype, size)
    _, heads, length, _ = ops.shape(query)
    heads = {"output": heads, "weights": heads, "any_visible": ops.shape(visibility.pair_mask)[1]}
    return {
        name: ops.reshape(result, (num_blocks, heads[name], length, -1))
        for name, result in zip(names, results, strict=True)
    }


def _flatten_blocks(tensor):
    """Returns [B · C, ...] with all other axes of a block as one."""
    return ops.reshape(tensor, (ops.shape(tensor)[0], -1))
