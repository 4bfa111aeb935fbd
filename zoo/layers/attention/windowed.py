"""What attention to a part of the keys has in common that costs no more than that part."""

import dataclasses
from typing import Any

from keras import ops

from zoo.layers.attention import base as base_attention
from zoo.layers.attention.masks import Visibility
from zoo.layers.attention.multi_head import MultiHeadAttention
from zoo.layers.core.kernels import map_rows
from zoo.layers.scores.location import LocationScore


@dataclasses.dataclass(frozen=True)
class BlockVisibility(Visibility):
    """Visibility of blocks that stand one behind another on the batch axis, with places that count from each window.

    Args:
        count: Number of blocks of a sequence, C.
    """

    count: Any = 1


class BlockedAttention(MultiHeadAttention):
    """Base of multi-head attention in which a query sees only keys near its own place.

    The queries are cut into blocks, each with the window of the keys that its queries may see. The blocks stand on the
    batch axis, and there everything is as in `MultiHeadAttention`: scores, positions, masks, biases, dropout and fused
    kernels. Scores of queries and keys outside each other's windows are never worked out. Positions must depend on
    distances alone where they act on scores, since they are asked once for all blocks.

    A subclass overrides `sees` and `blocks`.

    Args:
        *args: Sizes of `MultiHeadAttention`.
        **kwargs: Other options of `MultiHeadAttention`.

    Raises:
        ValueError: For a score that depends on the place of a key among all keys.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if isinstance(self.score, LocationScore):
            raise ValueError(
                f"`score` of {type(self).__name__} must depend on queries and keys; LocationScore depends on the place "
                f"of a key among all keys, but a block sees only some. Received: score={self.score!r}."
            )

    def sees(self, query_places, key_places):
        """Returns which query may see which key without any mask, boolean [T, S].

        Args:
            query_places: int32 [T, 1].
            key_places: int32 [S].
        """
        raise NotImplementedError(f"{type(self).__name__} must override `sees`.")

    def blocks(self, length, keys, start, causal):
        """Returns the `Blocks`, whose windows have all keys in them that their queries see.

        Args:
            length: T, an integer or, where it is not known, a scalar tensor.
            keys: S, likewise.
            start: Place of the first query, a scalar tensor.
            causal: Whether a query sees only the keys up to its own place.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `blocks`.")

    def attend(self, query, memory, visible, attention_bias, return_attention_scores, drop):
        batch, _, length, _ = ops.shape(query)
        keys = ops.shape(memory["value"])[-2]
        blocks = self.blocks(length, keys, visible.query_positions[0], visible.causal)
        found = super().attend(
            _fold(blocks.cut_rows(query), batch),
            {name: _fold(blocks.cut_keys(memory[name]), batch) for name in ("key", "value")},
            self._visible_in(blocks, visible, batch),
            None if attention_bias is None else _fold(blocks.cut_pairs(_rank_4(attention_bias)), batch),
            return_attention_scores,
            drop,
        )
        found = {name: _unfold(tensor, batch, blocks.count) for name, tensor in found.items()}
        results = {name: blocks.join_rows(found[name], length) for name in ("output", "seen")}
        if return_attention_scores:
            results["weights"] = blocks.spread(found["weights"], length, keys)
        return results

    def _visible_in(self, blocks, visible, batch):
        """Returns the visibility inside the blocks, which have the batch axis B · C."""
        keys = ops.arange(blocks.window, dtype="int32")
        places = blocks.key_places()
        key_mask = ops.logical_and(places >= 0, places < ops.shape(visible.key_positions)[0])[None]
        if visible.key_mask is not None:
            key_mask = ops.logical_and(key_mask, ops.squeeze(blocks.cut_keys(visible.key_mask[:, :, None]), -1))
        query_mask = visible.query_mask
        if query_mask is not None:
            query_mask = _merge(ops.squeeze(blocks.cut_rows(query_mask[:, :, None]), -1), batch)
        pair_mask = self.sees(blocks.row_places[:, None], keys)[None, None]
        if visible.pair_mask is not None:
            pair_mask = ops.logical_and(pair_mask, _fold(blocks.cut_pairs(visible.pair_mask), batch))
        return BlockVisibility(
            query_positions=blocks.row_places,
            key_positions=keys,
            query_mask=query_mask,
            key_mask=_merge(key_mask, batch),
            pair_mask=pair_mask,
            causal=visible.causal,
            heads=True,
            count=blocks.count,
        )

    def _attend_plainly(self, query, memory, visible, bias, seed, names):
        _, heads, rows, _ = query.shape
        cost = heads * rows * memory["value"].shape[-2] * self.pair_size()  # of a block
        if self._fits(cost, query, visible.count):
            found = self.attend_rows(query, memory, visible, bias, seed)
            return {name: found[name] for name in names}
        if cost > base_attention.CHUNK_BUDGET:  # some rows of all blocks at a time
            return super()._attend_plainly(query, memory, visible, bias, seed, names)
        return self._attend_some_blocks(query, memory, visible, bias, seed, names, base_attention.CHUNK_BUDGET // cost)

    def _fits(self, cost, query, count):
        """Returns whether all blocks are worked out at once, each of which costs that many numbers."""
        many, _, rows, _ = query.shape
        if not self.is_repeatable():
            return True
        if self.implementation in ("dense", "blockwise") and rows > 1:
            return self.implementation == "dense"
        many = many if isinstance(many, int) else count  # a batch of unknown size counts as one
        return rows == 1 or not isinstance(many, int) or cost * many <= base_attention.DENSE_LIMIT

    def _attend_some_blocks(self, query, memory, visible, bias, seed, names, size):
        """Works out `size` blocks at a time, and once more in the backward pass."""
        masks = {name: getattr(visible, name) for name in ("query_mask", "key_mask", "pair_mask")}
        # A mask of pairs that all blocks share stays as it is.
        masks = {name: mask for name, mask in masks.items() if mask is not None and not _is_shared(mask)}
        parts = {"query": query, **memory, **masks, **({} if bias is None else {"bias": bias})}
        shapes = {name: ops.shape(part)[1:] for name, part in parts.items()}

        def attend_blocks(rows, shared, index):
            parts = {name: ops.reshape(row, (-1, *shapes[name])) for name, row in rows.items()}
            own = dataclasses.replace(visible, **{name: parts[name] for name in masks})
            memory = {name: parts[name] for name in ("key", "value")}
            found = self.attend_rows(parts["query"], memory, own, parts.get("bias"), seed, index)
            return tuple(_flat(found[name]) for name in names)

        many = ops.shape(query)[0]
        size = min(many, size) if isinstance(many, int) else ops.minimum(many, size)
        rows = {name: _flat(part) for name, part in parts.items()}
        results = map_rows(attend_blocks, rows, {}, self.compare_weights(), len(names), self.compute_dtype, size)
        _, heads, length, _ = ops.shape(query)
        heads = {"output": heads, "weights": heads, "seen": ops.shape(visible.pair_mask)[1]}
        return {
            name: ops.reshape(result, (many, heads[name], length, -1))
            for name, result in zip(names, results, strict=True)
        }


def _rank_4(bias):
    bias = ops.convert_to_tensor(bias)
    return ops.reshape(bias, (*(1,) * (4 - len(bias.shape)), *ops.shape(bias)))


def _merge(tensor, batch):
    """Returns [B · C, ...] from [B or 1, C, ...]."""
    _, count, *rest = ops.shape(tensor)
    if tensor.shape[0] == 1:
        tensor = ops.broadcast_to(tensor, (batch, count, *rest))
    return ops.reshape(tensor, (batch * count, *rest))


def _fold(tensor, batch):
    """Returns [B · C, N, R, D] from [B or 1, N, C, R, D]."""
    return _merge(ops.swapaxes(tensor, 1, 2), batch)


def _unfold(tensor, batch, count):
    """Returns [B, N, C, R, D] from [B · C, N, R, D]."""
    return ops.swapaxes(ops.reshape(tensor, (batch, count, *ops.shape(tensor)[1:])), 1, 2)


def _flat(tensor):
    return ops.reshape(tensor, (ops.shape(tensor)[0], -1))


def _is_shared(mask):
    return mask.shape[0] == 1
