"""In which pieces attention is computed: all at once, in chunks of queries, in tiles, or by the backend's own kernel.

`BaseAttention` says what is computed; here is decided how, with the same results. Everywhere the query is from the
layer's `project_query`, the memory from its `project_memory`, and the bias, if any, has a row for each query.
"""

import contextlib
import functools
import math
import operator
from contextvars import ContextVar
from typing import NamedTuple

from keras import backend, ops

from zoo.layers.core import kernels
from zoo.layers.core.dropout import seeds_of_parts
from zoo.layers.core.kernels import axis_size, checkpointed_map, fuses_masks, has_fused_attention
from zoo.layers.core.running_softmax import has_running_softmax
from zoo.layers.core.tiles import attend_in_tiles, is_pairwise, pairwise, tile_sizes

IMPLEMENTATIONS = ("auto", "dense", "blockwise", "fused")
# Numbers that a chunk of queries may take, and those from which on chunks are worth their second forward pass.
CHUNK_BUDGET = 2**21
DENSE_LIMIT = 2**25
# How many times as many they are on an accelerator: its caches hold no chunk anyway, and each step of a loop takes a
# dozen kernels of some 5 µs, however little they do, in which it computes millions of numbers.
CHUNKS_OF_ACCELERATORS = 64
DENSE_OF_ACCELERATORS = 16
# Queries in a chunk, below which the products are too thin to be worth it where tiles are possible.
MIN_CHUNK = 16


class Execution(NamedTuple):
    """By which path attention is computed, and why.

    Args:
        path: `"fused"`, the backend's kernel; `"tiles"` of queries × keys; `"chunks"` of queries, each with all keys;
            `"sums"` of linear attention; or `"dense"`, all at once.
        reason: Why this one.
    """

    path: str
    reason: str


_choices: ContextVar[list[Execution] | None] = ContextVar("choices", default=None)


@contextlib.contextmanager
def recorded_choices():
    """Returns a context in whose list every choice of a path is recorded."""
    choices: list[Execution] = []
    token = _choices.set(choices)
    try:
        yield choices
    finally:
        _choices.reset(token)


def record(path, reason):
    """Records the choice of a path, if somebody asks for it; returns it."""
    choices = _choices.get()
    if choices is not None:
        choices.append(Execution(path, reason))
    return path


def attend(layer, query, memory, visible, bias, return_attention_scores, training):
    """Returns the results of `BaseAttention.attend` by the fused kernel if that can be, or else without."""
    drop = training and layer.dropout > 0
    if not drop and _can_fuse(layer, visible, bias):
        record("fused", f"the backend has a kernel for this (implementation={layer.implementation!r})")
        output = layer.fused_output(query, memory, visible, bias)
        seen = None if visible.is_plainly_causal else visible.seen()
        # Where there is nothing to attend to, maybe in one head only, a kernel attends to everything alike.
        output = output if seen is None else ops.where(seen, output, ops.cast(0.0, output.dtype))
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
    return pairwise(method)


def is_in_kernel(layer, names):
    """Returns whether fused kernels compute what the methods of these names do."""
    return all(getattr(getattr(layer, name), "in_kernel", False) for name in names)


def is_overridden_since(layer, names, method):
    """Returns whether one of the methods of these names is overridden in a class below the one that has `method`.

    Classes that only observe, as those of `zoo.trace`, override nothing.
    """
    order = [layer, *(owner for owner in type(layer).__mro__ if not getattr(owner, "only_observes", False))]

    def depth(name):
        return next(number for number, owner in enumerate(order) if name in vars(owner))

    return any(depth(name) < depth(method) for name in names)


def _can_fuse(layer, visible, bias):
    wanted = layer.implementation == "fused" or (layer.implementation == "auto" and has_fused_attention())
    is_plain = bias is None and (not visible.hides or visible.is_plainly_causal)
    fits = (is_plain or fuses_masks()) and not visible.chooses
    return wanted and fits and layer.can_fuse(visible.hides, bias is not None)


def attend_unfused(layer, query, memory, visible, bias, seed, names):
    """Returns those results of `layer.attend_rows` that `names` has, by the path that `choose` says."""
    execution = choose(layer, query, memory, visible)
    if "output" in names:
        record(*execution)
    results = {}
    if execution.path == "tiles" and "output" in names:
        results = attend_in_tiles(layer, query, memory, visible, bias, seed)
        # What is asked for besides must not change the output.
        names = [name for name in names if name not in results]
    if not names:
        return results
    if execution.path == "dense":
        rest = layer.attend_rows(query, memory, visible, bias, seed)
        return {name: rest[name] for name in names}
    return {**results, **_attend_in_chunks(layer, query, memory, visible, bias, seed, names)}


def _attend_in_chunks(layer, query, memory, visible, bias, seed, names):
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


def choose(layer, query, memory, visible):
    """Returns the `Execution` of what no fused kernel computes."""
    why_dense = _why_at_once(layer, query, memory)
    if why_dense is not None:
        return Execution("dense", why_dense)
    why_chunks = _why_no_tiles(layer, query, memory, visible)
    if why_chunks is not None:
        return Execution("chunks", why_chunks)
    rows, columns = tile_sizes(query, memory["value"].shape[-2], visible.rule)
    return Execution("tiles", f"{rows} × {columns} at a time are compared, except where nothing is visible")


def _why_at_once(layer, query, memory):
    """Returns why all queries are computed at once, or `None` if they are not."""
    forced, sizes = layer.implementation == "blockwise", _sizes(layer, query, memory)
    *_, length, keys, _ = sizes
    if layer.implementation == "dense":
        return "implementation='dense'"
    if not forced and not (isinstance(length, int) and isinstance(keys, int)):
        return "a length is unknown"
    if layer.follows:
        return "the weights of a query follow from those of the one before"
    if length == 1:
        return "there is a single query"
    if has_zero(sizes):
        return "there is nothing to compute"
    count = math.prod([size for size in sizes if isinstance(size, int)])  # an unknown batch has at least one row
    if not forced and count <= dense_limit():
        return f"{count:,} numbers are few, up to {dense_limit():,}"
    if not layer.is_repeatable():
        return "a score draws random numbers or counts its calls"
    return None if has_loops(sizes) else "sizes are unknown while JAX infers shapes"


def _why_no_tiles(layer, query, memory, visible):
    """Returns why not even a chunk of queries is cut into tiles, or `None` if it is."""
    positions, lengths = getattr(layer, "positions", None), (query.shape[-2], memory["value"].shape[-2])
    by_pairs = positions is None or is_pairwise(positions, ("scores", "bias", "values"))
    reasons = (
        (not has_running_softmax(), f"there are no tiles on {backend.backend()}"),
        (not type(visible).may_be_cut, "the blocks of a window are no further cut, nor is a rolling cache"),
        (layer.pair_size() != 1, f"{layer.pair_size()} numbers for each pair of query and key are many"),
        (layer.compute_dtype == "float16", "sums of tiles would overflow in float16"),
        (not all(isinstance(length, int) for length in lengths), "a length is unknown"),
        (_fits_in_chunks(layer, query, memory, visible), "neither a causal mask nor a rule has tiles to skip"),
        (not layer.has_softmax, f"{type(layer.normalization).__name__} needs all keys"),
        (not layer.is_pairwise(), f"{type(layer).__name__} overrides a part that may need all keys"),
        (visible.chooses, "what a query sees depends on all of its scores"),
        (not by_pairs, f"{type(positions).__name__} overrides a part that may need all keys"),
    )
    return next((reason for is_reason, reason in reasons if is_reason), None)


def _fits_in_chunks(layer, query, memory, visible):
    """Returns whether chunks are quicker than tiles: nothing can be skipped, and a chunk has enough queries."""
    sizes = [size if isinstance(size, int) else 1 for size in _sizes(layer, query, memory)]
    row_cost = math.prod(sizes[:-3]) * math.prod(sizes[-2:])
    skips = visible.causal or (visible.rule is not None and visible.rule.skips)
    return not skips and row_cost * MIN_CHUNK <= chunk_budget()


def _sizes(layer, query, memory):
    """Returns the sizes of all that is computed to compare queries with keys, [B, (N,) T, S, numbers for a pair].

    Those that are unknown are `None`.
    """
    return *query.shape[:-1], memory["value"].shape[-2], layer.pair_size()


def chunk_size(layer, query, memory):
    """Returns the number of queries in a chunk."""
    sizes = *ops.shape(query)[:-1], axis_size(memory["value"], -2), layer.pair_size()
    row_cost = functools.reduce(operator.mul, (*sizes[:-3], *sizes[-2:]))
    if isinstance(row_cost, int) and isinstance(query.shape[-2], int):
        return min(query.shape[-2], max(1, chunk_budget() // row_cost))
    rows = chunk_budget() // ops.maximum(1, row_cost)
    return ops.maximum(1, ops.minimum(sizes[-3], rows))


def chunk_budget():
    """Returns how many numbers a chunk may take."""
    return CHUNK_BUDGET * (CHUNKS_OF_ACCELERATORS if kernels.has_accelerator() else 1)


def dense_limit():
    """Returns up to how many numbers all queries are computed at once."""
    return DENSE_LIMIT * (DENSE_OF_ACCELERATORS if kernels.has_accelerator() else 1)


def has_loops(sizes):
    """Returns whether loops over axes of these sizes are possible: JAX, inferring shapes, has symbols for some."""
    return backend.backend() != "jax" or all(isinstance(size, int) for size in sizes)


def has_zero(sizes):
    """Returns whether one of these sizes is known to be zero."""
    return any(isinstance(size, int) and size == 0 for size in sizes)
