"""In which pieces attention is computed: all at once, a chunk of queries at a time, or by the backend's own kernel.

`BaseAttention` says what is computed; here is decided how, with the same results. Everywhere the query is from the
layer's `project_query`, the memory from its `project_memory`, and the bias, if any, has a row for each query.
"""

import functools
import math
import operator

import keras
from keras import backend, ops

from zoo.layers.core.kernels import checkpointed_map, has_fused_attention

IMPLEMENTATIONS = ("auto", "dense", "blockwise", "fused")
# Numbers that a chunk of queries may take, and those from which on chunks are worth their second forward pass.
CHUNK_BUDGET = 2**21
DENSE_LIMIT = 2**25


def attend(layer, query, memory, visible, bias, return_attention_scores, drop):
    """Returns the results of `BaseAttention.attend` by the fused kernel if that can be, or else without."""
    if not drop and _can_fuse(layer, visible, bias):
        output, seen = layer.fused_output(query, memory, visible, bias), visible.seen(layer.compute_dtype)
        # Where there is nothing to attend to, maybe in one head only, a kernel attends to everything alike.
        output = output if seen is None else ops.where(ops.cast(seen, "bool"), output, ops.zeros_like(output))
        results = {"output": output, "seen": seen}
        if return_attention_scores:
            results |= layer.attend_unfused(query, memory, visible, bias, None, ["weights"])
        return results
    names = ["output"] + ["weights"] * bool(return_attention_scores) + ["seen"] * visible.may_hide_all
    seed = layer.dropout_layer.seed_generator.next() if drop else None
    return layer.attend_unfused(query, memory, visible, bias, seed, names)


def in_kernel(method):
    """Marks a method as a part of what fused kernels compute, too; one that overrides it lacks the mark."""
    method.in_kernel = True
    return method


def is_in_kernel(layer, names):
    """Returns whether fused kernels compute what the methods of these names do."""
    return all(getattr(getattr(layer, name), "in_kernel", False) for name in names)


def _can_fuse(layer, visible, bias):
    wanted = layer.implementation == "fused" or (layer.implementation == "auto" and has_fused_attention())
    return wanted and layer.can_fuse(visible.hides, bias is not None)


def attend_unfused(layer, query, memory, visible, bias, seed, names):
    """Returns those results of `layer.attend_rows` that `names` has, for all queries, at once or in chunks."""
    rows = {"query": query, **visible.rows(), **({} if bias is None else {"bias": bias})}

    def attend_rows(rows, memory, index):
        results = layer.attend_rows(rows["query"], memory, visible.at(rows), rows.get("bias"), seed, index)
        return tuple(results[name] for name in names)

    size = chunk_size(layer, query, memory)
    if size is None:
        results = attend_rows(rows, memory, 0)
    else:
        weights, jit = layer.compare_weights(), layer.pair_size() > 1
        results = checkpointed_map(attend_rows, rows, memory, weights, len(names), layer.compute_dtype, size, jit)
    return dict(zip(names, results, strict=True))


def chunk_size(layer, query, memory):
    """Returns the number of queries in a chunk, or `None` for all at once."""
    length, keys = query.shape[-2], memory["value"].shape[-2]
    forced = layer.implementation == "blockwise"
    if layer.implementation == "dense" or not (forced or (isinstance(length, int) and isinstance(keys, int))):
        return None
    if not layer.is_repeatable():
        return None
    sizes = (*ops.shape(query)[:-1], ops.shape(memory["value"])[-2], layer.pair_size())
    known = [size if isinstance(size, int) else 1 for size in sizes]  # a batch of unknown size has at least one row
    if not has_loops(sizes):
        return None
    if length == 1 or has_zero(sizes) or (not forced and math.prod(known) <= DENSE_LIMIT):
        return None
    row_cost = functools.reduce(operator.mul, (*sizes[:-3], *sizes[-2:]))
    if isinstance(row_cost, int) and isinstance(length, int):
        return min(length, max(1, CHUNK_BUDGET // row_cost))
    rows = CHUNK_BUDGET // ops.maximum(1, row_cost)
    return ops.maximum(1, ops.minimum(sizes[-3], rows))


def has_loops(sizes):
    """Returns whether loops over axes of these sizes are possible: JAX, inferring shapes, has symbols for some."""
    return backend.backend() != "jax" or all(isinstance(size, int) for size in sizes)


def has_zero(sizes):
    """Returns whether one of these sizes is known to be zero."""
    return any(isinstance(size, int) and size == 0 for size in sizes)


class _FixedSeed(keras.random.SeedGenerator):
    """A seed that is known already: a chunk that is computed twice drops the same weights both times."""

    def __init__(self, seed):
        self.seed = seed
        self._initial_seed = 0  # without one, Keras draws differently on PyTorch

    def next(self, ordered=True):
        return self.seed


def drop_weights(weights, rate, seed, chunk):
    """Returns attention weights [..., T, S] after dropout, which drops other weights in each chunk of queries.

    The seed is that of the whole call, or `None` if dropout is not active.
    """
    if seed is None:
        return weights
    seed = seed + ops.cast(ops.stack([chunk * 40503, 0]), seed.dtype)
    return keras.random.dropout(weights, rate, seed=_FixedSeed(seed))
