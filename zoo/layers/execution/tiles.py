"""Attention in tiles of queries × keys with a running softmax, whose memory is independent of both lengths.

For query i and key j of a tile, `pᵢⱼ = exp(sᵢⱼ − mᵢ)`, where m is the largest score so far; the sums of p and of p · v
are scaled down whenever m grows, and their quotient is the output. Tiles in which all pairs are masked are skipped, so
that a causal mask halves the work; no mask is computed for tiles without masked pairs. The backward pass recomputes the
scores of a tile.

Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", https://arxiv.org/abs/1805.02867; Rabe and
Staats 2021, "Self-attention Does Not Need O(n²) Memory", https://arxiv.org/abs/2112.05682.
"""

import dataclasses
import math

from keras import backend, ops

from zoo.layers.core import kernels
from zoo.layers.core.dropout import drop_weights, seeds_of_parts
from zoo.layers.core.loops import join_chunks, split_chunks
from zoo.layers.execution.running_softmax import running_softmax
from zoo.layers.visibility.base import Blocks, Range
from zoo.layers.visibility.sequences import Causal

# The largest number of scores in a tile, over all heads and sequences; and its factor on an accelerator, see `plan`.
TILE_BUDGET = 2**19
TILES_OF_ACCELERATORS = 64
# The fewest queries or keys in a tile of a rule with a span: products of fewer rows are slow.
SMALLEST_SIDE = 64


def tile_sizes(shape, keys, rule=None):
    """Returns the numbers of queries and keys in a tile, for queries of a shape [B, (N,) T, H] and S `keys`.

    For a `VisibilityRule` with a span, tiles are about as small as the span, so that few masked pairs are computed.
    """
    *leading, length, _ = shape
    budget = TILE_BUDGET * (TILES_OF_ACCELERATORS if kernels.has_accelerator() else 1)
    for size in leading:
        budget //= size or 1
    side = 1
    largest = max(rule.span // 2, SMALLEST_SIDE) if rule is not None and rule.span is not None else math.inf
    while 4 * side * side <= budget and 2 * side <= largest:
        side *= 2
    return _even_size(length, side), _even_size(keys, side)


def _even_size(length, size):
    """Returns the size of tiles along an axis: the fewest tiles of at most `size`, about equally large."""
    return -(-length // -(-length // size))


def attend_in_tiles(layer, query, memory, visibility, bias, seed, names):
    """Returns `output`, and `any_visible` if all keys of a query may be masked; tiles return no weights."""
    length, keys, visibility = query.shape[-2], memory["value"].shape[-2], visibility.computed()
    sizes = tile_sizes(query.shape, keys, visibility.rule)
    counts = -(-length // sizes[0]), -(-keys // sizes[1])
    grid = _Grid(*counts, *sizes)
    rows = grid.split_rows({"query": query, **_as_columns(visibility.query_vectors())})
    columns = grid.split_columns({**memory, **_as_columns(visibility.key_vectors())})
    pairs = {"pair_mask": visibility.pair_mask, "bias": bias}
    cells = {name: grid.split_pairs(tensor, keys) for name, tensor in pairs.items() if tensor is not None}
    if seed is not None:
        cells["seed"] = seeds_of_parts(seed, ops.arange(grid.num_rows * grid.num_columns, dtype="int32"))

    vectors = [*visibility.query_vectors(), *visibility.key_vectors()]

    def score(tile, is_masked):
        tile_visibility = visibility.of_vectors({name: tile[name][..., 0] for name in vectors}, tile.get("pair_mask"))
        scores = layer.compare(tile["query"], tile["key"], tile_visibility)
        wide = backend.result_type(scores.dtype, "float32")
        scores = ops.cast(scores, wide)
        if "bias" in tile:
            scores = scores + ops.cast(tile["bias"], wide)
        if not is_masked:
            return scores, None
        exists = tile_visibility.key_positions < keys  # the last tile may be padded
        mask = tile_visibility.mask()
        exists = exists[None, None, None] if visibility.heads else exists[None, None]
        return scores, exists if mask is None else ops.logical_and(mask, exists)

    def total(weights, tile):
        tile_visibility = visibility.of_vectors({name: tile[name][..., 0] for name in vectors})
        dropped = drop_weights(weights, layer.dropout, tile.get("seed"))
        return layer.weighted_sum(dropped, tile["value"], tile_visibility)

    visible = grid.visible_tiles(visibility, rows, columns, keys)
    output, any_visible = running_softmax(
        score, total, rows, columns, cells, visible, layer.compare_weights(), layer.compute_dtype
    )
    results = {"output": join_chunks(output, length)}
    if visibility.may_hide_all:
        results["any_visible"] = join_chunks(any_visible, length)
    return results


def _as_columns(vectors):
    """Returns vectors [..., L], by name, each with an axis of size 1 at the end."""
    return {name: vector[..., None] for name, vector in vectors.items()}


@dataclasses.dataclass(frozen=True)
class _Grid:
    """A grid of tiles over T queries and S keys.

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
        return {name: split_chunks(tensor, self.num_rows, self.rows) for name, tensor in tensors.items()}

    def split_columns(self, tensors):
        """Returns tensors [num_columns, ..., columns, D] from [..., S, D]; padding has the positions after the keys."""
        split = {name: split_chunks(tensor, self.num_columns, self.columns) for name, tensor in tensors.items()}
        first = tensors["key_positions"][0, 0]
        positions = ops.arange(self.num_columns * self.columns, dtype="int32") + first
        return {**split, "key_positions": ops.reshape(positions, (self.num_columns, self.columns, 1))}

    def split_pairs(self, tensor, keys):
        """Returns [num_rows · num_columns, ..., rows, columns] from [..., T, S], where S may be 1."""
        if tensor.shape[-1] == 1:
            tensor = ops.broadcast_to(tensor, (*ops.shape(tensor)[:-1], keys))
        tiles = split_chunks(tensor, self.num_rows, self.rows)  # [num_rows, ..., rows, S]
        tiles = split_chunks(ops.swapaxes(tiles, -1, -2), self.num_columns, self.columns)
        tiles = ops.swapaxes(ops.swapaxes(tiles, -1, -2), 0, 1)
        return ops.reshape(tiles, (self.num_rows * self.num_columns, *ops.shape(tiles)[2:]))

    def visible_tiles(self, visibility, rows, columns, keys):
        """Returns which tiles may have unmasked pairs, and which have no masked pair, both boolean [rows · columns]."""
        blocks = self._blocks(visibility, rows, columns)
        exists = ops.arange(1, self.num_columns + 1, dtype="int32") * self.columns <= keys
        any_visible = ops.broadcast_to(ops.ones((1, 1), "bool"), self.shape)
        all_visible = ops.broadcast_to(exists, self.shape)
        for rule in _rules(visibility):
            any_visible = ops.logical_and(any_visible, ops.any(self._by_batch(rule.may_allow(blocks)), axis=0))
            all_visible = ops.logical_and(all_visible, ops.all(self._by_batch(rule.allows_all(blocks)), axis=0))
        if visibility.query_mask is not None or visibility.key_mask is not None or visibility.pair_mask is not None:
            all_visible = ops.zeros_like(all_visible)
        return ops.reshape(any_visible, (-1,)), ops.reshape(all_visible, (-1,))

    @property
    def shape(self):
        return self.num_rows, self.num_columns

    def _by_batch(self, tiles):
        """Returns [B or 1, num_rows, num_columns] from a tensor that broadcasts to this shape."""
        tiles = ops.reshape(tiles, (*(1,) * (3 - len(tiles.shape)), *ops.shape(tiles)))
        return ops.broadcast_to(tiles, (ops.shape(tiles)[0], *self.shape))

    def _blocks(self, visibility, rows, columns):
        """Returns the tiles as `Blocks`."""
        query = _range(rows["query_positions"], (1, 2))
        inputs = {name: Range(ids[:, None, None], ids[:, None, None]) for name, ids in visibility.inputs.items()}
        for name in visibility.inputs:
            if name in rows:
                inputs[name] = _range(rows[name], (2, 3), new_axis=2)
            elif name in columns:
                inputs[name] = _range(columns[name], (2, 3), new_axis=1)
        query = Range(query.first[:, None], query.last[:, None])
        return Blocks(query, _range(columns["key_positions"], (1, 2)), inputs)


def _range(parts, axes, new_axis=None):
    """Returns the smallest and the largest number in each part, over the `axes`.

    With a `new_axis`, the parts [I, B, L, 1] become [B, I, 1] (for 2) or [B, 1, I] (for 1).
    """
    ends = ops.min(parts, axis=axes), ops.max(parts, axis=axes)
    if new_axis is not None:
        ends = (ops.expand_dims(ops.transpose(end), new_axis) for end in ends)
    return Range(*ends)


def _rules(visibility):
    """Returns all rules of a visibility, the causal mask among them."""
    return [Causal()] * visibility.causal + ([] if visibility.rule is None else [visibility.rule])
