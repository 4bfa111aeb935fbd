"""Attention in tiles of queries × keys, with a running softmax: memory grows with neither length.

For query i and key j of a tile, `pᵢⱼ = exp(sᵢⱼ − mᵢ)`, where m is the largest score so far; the sums of p and of p · v
are scaled down whenever m grows, and their quotient is the output. Tiles in which no query sees a key are skipped, so
that a causal mask halves the work; those in which every query sees every key need no mask. The backward pass computes
the scores of a tile again.

Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", https://arxiv.org/abs/1805.02867; Rabe and
Staats 2021, "Self-attention Does Not Need O(n²) Memory", https://arxiv.org/abs/2112.05682.
"""

import dataclasses

from keras import backend, ops

from zoo.layers.core import kernels

# Scores in a tile, of all heads and sequences.
TILE_BUDGET = 2**19


def pairwise(method):
    """Marks a method of which each score, or term of a sum, depends on its own query, key and their positions alone.

    One that overrides it lacks the mark.
    """
    method.pairwise = True
    return method


def is_pairwise(owner, names):
    """Returns whether the methods of these names are marked as `pairwise`."""
    return all(getattr(getattr(owner, name), "pairwise", False) for name in names)


def tile_sizes(query, keys):
    """Returns the numbers of queries and keys in a tile, for queries [B, (N,) T, H] and S `keys`."""
    *leading, length, _ = query.shape
    budget = TILE_BUDGET
    for size in leading:
        budget //= size or 1
    side = 1
    while 4 * side * side <= budget:
        side *= 2
    return _even(length, side), _even(keys, side)


def _even(length, size):
    """Returns the size of the fewest tiles that are at most `size` long, all about as long."""
    return -(-length // -(-length // size))


def attend_in_tiles(layer, query, memory, visible, bias, drop):
    """Returns `output` and `seen` for all queries, see `BaseAttention.attend`.

    `drop(weights, tile)` is the dropout of the weights of the tile of this number.
    """
    length, keys = query.shape[-2], memory["value"].shape[-2]
    sizes = tile_sizes(query, keys)
    counts = -(-length // sizes[0]), -(-keys // sizes[1])
    grid = _Grid(*counts, *sizes)
    rows = grid.split_rows({"query": query, **_vectors(visible, "query")})
    columns = grid.split_columns({**memory, **_vectors(visible, "key")})
    pairs = {"pair_mask": visible.pair_mask, "bias": bias}
    cells = {name: grid.split_pairs(tensor, keys) for name, tensor in pairs.items() if tensor is not None}

    def score(tile, is_masked):
        vectors = {name: tile[name][..., 0] for name in _POSITIONS + _MASKS if name in tile}
        here = dataclasses.replace(visible, **vectors, pair_mask=tile.get("pair_mask"))
        scores = layer.compare(tile["query"], tile["key"], here)
        wide = backend.result_type(scores.dtype, "float32")
        scores = ops.cast(scores, wide)
        if "bias" in tile:
            scores = scores + ops.cast(tile["bias"], wide)
        if not is_masked:
            return scores, None
        exists = here.key_positions < keys  # the last tile may be filled up
        mask = here.mask()
        exists = exists[None, None, None] if visible.heads else exists[None, None]
        return scores, exists if mask is None else ops.logical_and(mask, exists)

    def total(weights, tile, number):
        vectors = {name: tile[name][..., 0] for name in _POSITIONS}
        here = dataclasses.replace(visible, **vectors)
        return layer.weighted_sum(drop(weights, number), tile["value"], here)

    some, all_of = grid.visible(visible, keys)
    output, seen = kernels.running_softmax(
        score, total, rows, columns, cells, (some, all_of), layer.compare_weights(), layer.compute_dtype
    )
    results = {"output": kernels.join_chunks(output, length)}
    if visible.may_hide_all:
        results["seen"] = kernels.join_chunks(seen, length)
    return results


_POSITIONS = ("query_positions", "key_positions")
_MASKS = ("query_mask", "key_mask")


def _vectors(visible, side):
    """Returns the positions and the mask of one side, by name, each with an axis of size 1 at the end."""
    vectors = {name: getattr(visible, name) for name in (f"{side}_positions", f"{side}_mask")}
    return {name: vector[..., None] for name, vector in vectors.items() if vector is not None}


@dataclasses.dataclass(frozen=True)
class _Grid:
    """A cut of T queries and S keys into tiles.

    Args:
        num_rows: Number of tiles along the queries.
        num_columns: Number of tiles along the keys.
        rows: Queries in a tile.
        columns: Keys in a tile.
    """

    num_rows: int
    num_columns: int
    rows: int
    columns: int

    def split_rows(self, tensors):
        """Returns tensors [num_rows, ..., rows, D] from [..., T, D]."""
        return {name: kernels.split_chunks(tensor, self.num_rows, self.rows) for name, tensor in tensors.items()}

    def split_columns(self, tensors):
        """Returns tensors [num_columns, ..., columns, D] from [..., S, D]; positions go on after the last key."""
        split = {name: kernels.split_chunks(tensor, self.num_columns, self.columns) for name, tensor in tensors.items()}
        first = tensors["key_positions"][0, 0]
        positions = ops.arange(self.num_columns * self.columns, dtype="int32") + first
        return {**split, "key_positions": ops.reshape(positions, (self.num_columns, self.columns, 1))}

    def split_pairs(self, tensor, keys):
        """Returns [num_rows · num_columns, ..., rows, columns] from [..., T, S], where S may be 1."""
        if tensor.shape[-1] == 1:
            tensor = ops.broadcast_to(tensor, (*ops.shape(tensor)[:-1], keys))
        tiles = kernels.split_chunks(tensor, self.num_rows, self.rows)  # [num_rows, ..., rows, S]
        tiles = kernels.split_chunks(ops.swapaxes(tiles, -1, -2), self.num_columns, self.columns)
        tiles = ops.swapaxes(ops.swapaxes(tiles, -1, -2), 0, 1)
        return ops.reshape(tiles, (self.num_rows * self.num_columns, *ops.shape(tiles)[2:]))

    def visible(self, visible, keys):
        """Returns in which tiles any query may see a key, and in which all see all, boolean [rows · columns] both."""
        tiles = self.split_rows({"positions": visible.query_positions[:, None]})["positions"]
        first, last = ops.min(tiles, axis=(1, 2)), ops.max(tiles, axis=(1, 2))
        first_key = ops.arange(self.num_columns, dtype="int32") * self.columns
        last_key = first_key + (self.columns - 1)
        some = ops.ones((self.num_rows, self.num_columns), dtype="bool")
        all_of = ops.broadcast_to(last_key < keys, (self.num_rows, self.num_columns))
        if visible.causal:
            some = ops.logical_and(some, first_key <= last[:, None])
            all_of = ops.logical_and(all_of, last_key <= first[:, None])
        if visible.query_mask is not None or visible.key_mask is not None or visible.pair_mask is not None:
            all_of = ops.zeros_like(all_of)
        return ops.reshape(some, (-1,)), ops.reshape(all_of, (-1,))
