"""The plan of a call: the path by which attention is computed, chosen once, from facts that are known in advance.

All paths compute the same results. In this module `shape` is the shape of the projected queries, [B, (N,) T, H], and
`keys` is the number of keys.
"""

import contextlib
import math
from contextvars import ContextVar
from typing import NamedTuple

from keras import backend

from zoo.layers.core import kernels
from zoo.layers.core.facts import PAIRWISE, keeps, known_sizes, remembered
from zoo.layers.core.kernels import fuses_masks, has_fused_attention
from zoo.layers.execution.running_softmax import has_running_softmax
from zoo.layers.execution.tiles import tile_sizes

IMPLEMENTATIONS = ("auto", "dense", "blockwise", "fused")
# The largest size of a chunk of queries in numbers, and the most numbers that are computed at once; beyond it, chunks
# are worth their second forward pass.
CHUNK_BUDGET = 2**21
DENSE_LIMIT = 2**25
# Factors of both on an accelerator, whose caches no chunk fits into anyway. Each step of a loop launches a dozen
# kernels; a launch takes about 5 µs, in which millions of numbers could be computed.
CHUNKS_OF_ACCELERATORS = 64
DENSE_OF_ACCELERATORS = 16
# The fewest queries in a chunk where tiles are possible: products of fewer rows are slow.
MIN_CHUNK = 16


class Execution(NamedTuple):
    """The path by which attention is computed, and the reason.

    Args:
        path: `"fused"`, the backend's kernel; `"tiles"` of queries × keys; `"chunks"` of queries, each with all keys;
            `"windows"`, a few blocks of queries at a time; `"sums"` of linear attention; or `"dense"`,
            all at once.
        reason: Why this path was chosen.
    """

    path: str
    reason: str


choices: ContextVar[list[Execution] | None] = ContextVar("choices", default=None)
"""The list to which the chosen paths are appended, or `None` if they are not recorded."""


@contextlib.contextmanager
def recorded_choices():
    """Returns a context that records every chosen path in a list."""
    executions: list[Execution] = []
    token = choices.set(executions)
    try:
        yield executions
    finally:
        choices.reset(token)


def record(execution):
    """Records a chosen path if a context of `recorded_choices` is active."""
    executions = choices.get()
    if executions is not None:
        executions.append(execution)


def plan(layer, shape, keys, visibility, biased=False, drops=False, weights=False):
    """Returns the `Execution` of a call, which depends only on facts that are known before anything is computed.

    Args:
        layer: The attention layer.
        shape: Shape of the projected queries, [B, (N,) T, H]; unknown sizes are `None`.
        keys: S.
        visibility: The `Visibility`.
        biased: Whether there is a bias.
        drops: Whether dropout is active.
        weights: Whether only the weights are computed.
    """
    if backend.backend() == "torch":
        *shape, keys = known_sizes((*shape, keys))
    sizes = tuple(shape), keys
    machine = CHUNK_BUDGET, DENSE_LIMIT, kernels.has_accelerator, has_fused_attention, fuses_masks
    options = layer.implementation, biased, drops, weights, machine
    return remembered(layer, (sizes, options, visibility.facts), lambda: _plan(layer, *sizes, visibility, options))


def _plan(layer, shape, keys, visibility, options):
    implementation, biased, drops, weights, *_ = options
    if not (drops or weights) and _can_fuse(layer, visibility, biased):
        return Execution("fused", f"the backend has a fused kernel for this call (implementation={implementation!r})")
    reason = _reason_for_dense(layer, shape, keys, visibility)
    if reason is not None:
        return Execution("dense", reason)
    if visibility.blocks is not None:
        cost, size = _window_cost(layer, shape, keys), windows_at_a_time(layer, shape, keys)
        if size > 0:
            return Execution("windows", f"{cost:,} numbers for each window, {size} windows at a time")
    reason = _reason_against_tiles(layer, shape, keys, visibility)
    if reason is not None:
        return Execution("chunks", reason)
    if weights:
        return Execution("chunks", "tiles return no weights")
    rows, columns = tile_sizes(shape, keys, visibility.rule)
    return Execution("tiles", f"tiles of {rows} × {columns} are computed, except those that are masked throughout")


def _can_fuse(layer, visibility, biased):
    prefers_fused = layer.implementation == "fused" or (layer.implementation == "auto" and has_fused_attention())
    is_plain = not biased and (not visibility.hides or visibility.is_plainly_causal)
    fits = (is_plain or fuses_masks()) and not visibility.chooses
    return prefers_fused and fits and layer.can_fuse(visibility.hides, biased)


def _reason_for_dense(layer, shape, keys, visibility):
    """Returns the reason to compute all queries at once, or `None` if there is none."""
    forced, sizes = layer.implementation == "blockwise", _sizes(layer, shape, keys)
    length = shape[-2]
    if layer.implementation == "dense":
        return "implementation='dense'"
    if visibility.blocks is not None:
        return _reason_for_all_windows(layer, shape, keys, visibility.blocks)
    if not forced and not (isinstance(length, int) and isinstance(keys, int)):
        return "a length is unknown"
    if layer.is_recurrent:
        return "the weights of a query depend on those of the previous one"
    if length == 1:
        return "there is a single query"
    if has_zero(sizes):
        return "there is nothing to compute"
    count = math.prod([size for size in sizes if isinstance(size, int)])  # an unknown batch has at least one row
    if not forced and count <= dense_limit():
        return f"{count:,} numbers are computed at once, up to {dense_limit():,}"
    if not layer.is_repeatable():
        return "a score draws random numbers or counts its calls"
    return None if has_loops(sizes) else "sizes are unknown while JAX infers shapes"


def _reason_for_all_windows(layer, shape, keys, blocks):
    """Returns the reason to compute all windows at once, one for each of the `blocks` of a sequence, or `None`."""
    num_windows, _, rows, _ = shape
    if not layer.is_repeatable() or not has_loops(shape):
        return "a score draws random numbers, or sizes are unknown while JAX infers shapes"
    if layer.implementation == "blockwise" and rows > 1:
        return None
    cost = _window_cost(layer, shape, keys)
    num_windows = num_windows if isinstance(num_windows, int) else blocks  # a batch of unknown size counts as one
    if rows == 1 or not isinstance(num_windows, int) or cost * num_windows <= dense_limit():
        return f"{cost:,} numbers for each window, all windows at once"
    return None


def _window_cost(layer, shape, keys):
    """Returns how many numbers are computed for one window."""
    return shape[1] * shape[2] * keys * layer.pair_size()


def windows_at_a_time(layer, shape, keys):
    """Returns how many windows of blocks are computed at a time; 0 if a single one exceeds the budget."""
    return chunk_budget() // _window_cost(layer, shape, keys)


def _reason_against_tiles(layer, shape, keys, visibility):
    """Returns the reason to compute chunks of queries with all keys and not tiles, or `None` if there is none."""
    positions, lengths = getattr(layer, "positions", None), (shape[-2], keys)
    is_pairwise = positions is None or keeps(positions, PAIRWISE, ("scores", "bias", "values"))
    reasons = (
        (not has_running_softmax(), f"there are no tiles on {backend.backend()}"),
        (not visibility.may_be_cut, "windows of blocks and rolling caches are not cut into tiles"),
        (layer.pair_size() != 1, f"the score computes {layer.pair_size()} numbers for each pair of query and key"),
        (layer.compute_dtype == "float16", "sums of tiles would overflow in float16"),
        (not all(isinstance(length, int) for length in lengths), "a length is unknown"),
        (_chunks_are_faster(layer, shape, keys, visibility), "neither a causal mask nor a rule has tiles to skip"),
        (not layer.has_softmax, f"{type(layer.normalization).__name__} requires all keys"),
        (not layer.is_pairwise(), f"{type(layer).__name__} overrides a method that may require all keys"),
        (visibility.chooses, "the visibility rule requires all scores of a query"),
        (not is_pairwise, f"{type(positions).__name__} overrides a method that may require all keys"),
    )
    return next((reason for is_reason, reason in reasons if is_reason), None)


def _chunks_are_faster(layer, shape, keys, visibility):
    """Returns whether chunks are faster than tiles: no tile can be skipped, and a chunk has enough queries."""
    sizes = [size if isinstance(size, int) else 1 for size in _sizes(layer, shape, keys)]
    row_cost = math.prod(sizes[:-3]) * math.prod(sizes[-2:])
    skips = visibility.causal or (visibility.rule is not None and visibility.rule.skips)
    return not skips and row_cost * MIN_CHUNK <= chunk_budget()


def _sizes(layer, shape, keys):
    """Returns the sizes of the tensor that compares queries and keys, [B, (N,) T, S, numbers for a pair].

    Unknown sizes are `None`.
    """
    return *shape[:-1], keys, layer.pair_size()


def chunk_budget():
    """Returns the largest size of a chunk, in numbers."""
    return CHUNK_BUDGET * (CHUNKS_OF_ACCELERATORS if kernels.has_accelerator() else 1)


def dense_limit():
    """Returns the most numbers that are computed at once."""
    return DENSE_LIMIT * (DENSE_OF_ACCELERATORS if kernels.has_accelerator() else 1)


def has_loops(sizes):
    """Returns whether loops over axes of these sizes are possible: some are symbolic while JAX infers shapes."""
    return backend.backend() != "jax" or all(isinstance(size, int) for size in sizes)


def has_zero(sizes):
    """Returns whether one of these sizes is known to be zero."""
    return any(isinstance(size, int) and size == 0 for size in sizes)
