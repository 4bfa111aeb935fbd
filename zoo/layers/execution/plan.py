"""By which path attention is computed: planned once, from what is known before anything is computed.

`BaseAttention` says what is computed; a plan says how, with the same results. Everywhere the shape is that of what the
layer's `project_query` returns, [B, (N,) T, H], and the keys are counted.
"""

import contextlib
import math
from contextvars import ContextVar
from typing import NamedTuple

from keras import backend

from zoo.layers.core import kernels
from zoo.layers.core.facts import PAIRWISE, keeps, remembered
from zoo.layers.core.kernels import fuses_masks, has_fused_attention
from zoo.layers.execution.running_softmax import has_running_softmax
from zoo.layers.execution.tiles import tile_sizes

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
            `"windows"`, some blocks of queries with their windows of keys; `"sums"` of linear attention; or `"dense"`,
            all at once.
        reason: Why this one.
    """

    path: str
    reason: str


choices: ContextVar[list[Execution] | None] = ContextVar("choices", default=None)
"""The list to which choices are appended while they are recorded, or `None`."""


@contextlib.contextmanager
def recorded_choices():
    """Returns a context in whose list every choice of a path is recorded."""
    recorded: list[Execution] = []
    token = choices.set(recorded)
    try:
        yield recorded
    finally:
        choices.reset(token)


def record(execution):
    """Records a choice, if somebody asks for it."""
    recorded = choices.get()
    if recorded is not None:
        recorded.append(execution)


def plan(layer, shape, keys, visible, biased=False, drops=False, weights=False):
    """Returns the `Execution` of a call, from what is known before anything is computed: nothing else decides.

    Args:
        layer: The attention layer.
        shape: That of the projected queries, [B, (N,) T, H]; what is unknown is `None`.
        keys: S.
        visible: The `Visibility`.
        biased: Whether there is a bias.
        drops: Whether dropout is active.
        weights: Whether nothing but the weights is computed.
    """
    sizes = tuple(shape), keys
    machine = CHUNK_BUDGET, DENSE_LIMIT, kernels.has_accelerator, has_fused_attention, fuses_masks
    options = layer.implementation, biased, drops, weights, machine
    return remembered(layer, (sizes, options, visible.facts), lambda: _plan(layer, *sizes, visible, options))


def _plan(layer, shape, keys, visible, options):
    implementation, biased, drops, weights, *_ = options
    if not (drops or weights) and _can_fuse(layer, visible, biased):
        return Execution("fused", f"the backend has a kernel for this (implementation={implementation!r})")
    why_dense = _why_at_once(layer, shape, keys, visible)
    if why_dense is not None:
        return Execution("dense", why_dense)
    if visible.blocks is not None:
        cost, size = _window_cost(layer, shape, keys), windows_at_a_time(layer, shape, keys)
        if size > 0:
            return Execution("windows", f"{cost:,} numbers for each window, {size} windows at a time")
    why_chunks = _why_no_tiles(layer, shape, keys, visible)
    if why_chunks is not None:
        return Execution("chunks", why_chunks)
    if weights:
        return Execution("chunks", "tiles return no weights")
    rows, columns = tile_sizes(shape, keys, visible.rule)
    return Execution("tiles", f"{rows} × {columns} at a time are compared, except where nothing is visible")


def _can_fuse(layer, visible, biased):
    wanted = layer.implementation == "fused" or (layer.implementation == "auto" and has_fused_attention())
    is_plain = not biased and (not visible.hides or visible.is_plainly_causal)
    fits = (is_plain or fuses_masks()) and not visible.chooses
    return wanted and fits and layer.can_fuse(visible.hides, biased)


def _why_at_once(layer, shape, keys, visible):
    """Returns why all queries are computed at once, or `None` if they are not."""
    forced, sizes = layer.implementation == "blockwise", _sizes(layer, shape, keys)
    length = shape[-2]
    if layer.implementation == "dense":
        return "implementation='dense'"
    if visible.blocks is not None:
        return _why_all_windows(layer, shape, keys, visible.blocks)
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


def _why_all_windows(layer, shape, keys, blocks):
    """Returns why all windows are computed at once, each of which has one of the `blocks` of a sequence, or `None`."""
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
    """Returns how many numbers are computed for each window."""
    return shape[1] * shape[2] * keys * layer.pair_size()


def windows_at_a_time(layer, shape, keys):
    """Returns how many windows of blocks are computed at a time; 0 if even a single one takes too much."""
    return chunk_budget() // _window_cost(layer, shape, keys)


def _why_no_tiles(layer, shape, keys, visible):
    """Returns why not even a chunk of queries is cut into tiles, or `None` if it is."""
    positions, lengths = getattr(layer, "positions", None), (shape[-2], keys)
    by_pairs = positions is None or keeps(positions, PAIRWISE, ("scores", "bias", "values"))
    reasons = (
        (not has_running_softmax(), f"there are no tiles on {backend.backend()}"),
        (not visible.may_be_cut, "the blocks of a window are no further cut, nor is a rolling cache"),
        (layer.pair_size() != 1, f"{layer.pair_size()} numbers for each pair of query and key are many"),
        (layer.compute_dtype == "float16", "sums of tiles would overflow in float16"),
        (not all(isinstance(length, int) for length in lengths), "a length is unknown"),
        (_fits_in_chunks(layer, shape, keys, visible), "neither a causal mask nor a rule has tiles to skip"),
        (not layer.has_softmax, f"{type(layer.normalization).__name__} needs all keys"),
        (not layer.is_pairwise(), f"{type(layer).__name__} overrides a part that may need all keys"),
        (visible.chooses, "what a query sees depends on all of its scores"),
        (not by_pairs, f"{type(positions).__name__} overrides a part that may need all keys"),
    )
    return next((reason for is_reason, reason in reasons if is_reason), None)


def _fits_in_chunks(layer, shape, keys, visible):
    """Returns whether chunks are quicker than tiles: nothing can be skipped, and a chunk has enough queries."""
    sizes = [size if isinstance(size, int) else 1 for size in _sizes(layer, shape, keys)]
    row_cost = math.prod(sizes[:-3]) * math.prod(sizes[-2:])
    skips = visible.causal or (visible.rule is not None and visible.rule.skips)
    return not skips and row_cost * MIN_CHUNK <= chunk_budget()


def _sizes(layer, shape, keys):
    """Returns the sizes of all that is computed to compare queries with keys, [B, (N,) T, S, numbers for a pair].

    Those that are unknown are `None`.
    """
    return *shape[:-1], keys, layer.pair_size()


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
