"""Attention of blocks of queries to windows of keys, at the cost of the windows alone."""

import dataclasses

from keras import ops

from zoo.layers.attention.multi_head import MultiHeadAttention
from zoo.layers.attention.query_blocks import QueryBlocks
from zoo.layers.core.graphs import axis_size
from zoo.layers.core.masks import rank_4
from zoo.layers.execution.plan import has_zero, plan
from zoo.layers.visibility.base import Pairs, VisibilityRule
from zoo.layers.visibility.visibility import Visibility


class BlockedAttention(MultiHeadAttention):
    """Base of multi-head attention in which a query sees only keys near its own position.

    The queries are cut into blocks, each with the window of the keys that its queries may see. The blocks go to the
    batch axis, and there everything is as in `MultiHeadAttention`: scores, positions, masks, biases, dropout and fused
    kernels. Scores of queries and keys outside each other's windows are never computed. Positions that act on scores
    must depend on distances alone, since they are computed once for all blocks.

    A subclass has a `rule`, or overrides `sees`, and overrides `blocks`. By the rule large attention is computed in
    tiles, where the backend has them, as it is with that rule as `visibility`.

    Args:
        *args: Sizes of `MultiHeadAttention`.
        **kwargs: Other options of `MultiHeadAttention`.

    Raises:
        ValueError: For a score that depends on the position of a key among all keys.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.score.needs_all_keys:
            raise ValueError(
                f"`score` of {type(self).__name__} must depend on queries and keys; LocationScore depends on the place "
                f"of a key among all keys, but a block sees only some. Received: score={self.score!r}."
            )

    rule: VisibilityRule | None = None
    may_choose = False

    @property
    def whole_rule(self):
        if self.rule is None or type(self).sees is not BlockedAttention.sees:
            return None
        return self.rule if self.visibility is None else self.rule & self.visibility

    def sees(self, query_positions, key_positions):
        """Returns which query, at [T, 1], may see which key, at [S], if nothing is masked, boolean [T, S]."""
        if self.rule is None:
            raise NotImplementedError(f"{type(self).__name__} must override `sees`.")
        return self.rule.sees(Pairs(0, 0, query_positions, key_positions))

    def _by_rule(self, visible):
        """Returns the visibility with the layer's own rule, or `None` if a subclass sees something else."""
        if self.whole_rule is None:
            return None
        return dataclasses.replace(visible, rule=self.rule if visible.rule is None else self.rule & visible.rule)

    def blocks(self, length, start, causal):
        """Returns the `QueryBlocks`, whose windows contain all keys that their queries see.

        T is an integer or, if unknown, a scalar tensor; `start` is the position of the first query, a scalar tensor.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `blocks`.")

    def _cheapest_blocks(self, length, keys, start, causal):
        """Returns the `blocks`, or a single one if that is known to have no more pairs."""
        blocks = self.blocks(length, start, causal)
        known = isinstance(length, int) and isinstance(keys, int)
        if known and length * keys <= blocks.count * blocks.rows * blocks.window:
            return QueryBlocks.whole(length, keys, start)
        return blocks

    def attend(self, query, memory, visible, attention_bias, return_attention_scores, training):
        batch, _, length, _ = ops.shape(query)
        keys = ops.shape(memory["value"])[-2]
        if has_zero((batch, length, keys)):  # there is nothing to cut, and no pair outside a window
            return super().attend(query, memory, visible, attention_bias, return_attention_scores, training)
        whole = self._by_rule(visible)
        if visible.rolled:  # it is a window already
            return super().attend(query, memory, whole, attention_bias, return_attention_scores, training)
        tiled = self.implementation in ("auto", "blockwise") and whole is not None
        sizes = query.shape, memory["value"].shape[-2]
        if tiled and plan(self, *sizes, whole, biased=attention_bias is not None).path == "tiles":
            return super().attend(query, memory, whole, attention_bias, return_attention_scores, training)
        blocks = self._cheapest_blocks(length, keys, ops.sum(visible.query_positions[:1]), visible.causal)
        results = super().attend(
            _fold(blocks.cut_rows(query), batch),
            {name: _fold(blocks.cut_keys(memory[name]), batch) for name in ("key", "value")},
            self._visible_in_blocks(blocks, visible, batch),
            None if attention_bias is None else _fold(blocks.cut_pairs(rank_4(attention_bias)), batch),
            return_attention_scores,
            training,
        )
        results = {name: _unfold(tensor, batch, blocks.count) for name, tensor in results.items()}
        joined = {name: blocks.join_rows(results[name], length) for name in ("output", "seen")}
        if return_attention_scores:
            joined["weights"] = blocks.spread(results["weights"], length, keys)
        return joined

    def _visible_in_blocks(self, blocks, visible, batch):
        """Returns the visibility within the blocks, which have the batch axis B · C."""
        keys = ops.arange(blocks.window, dtype="int32")
        positions = blocks.key_positions()
        key_mask = ops.logical_and(positions >= 0, positions < axis_size(visible.key_positions, 0))[None]
        if visible.key_mask is not None:
            key_mask = ops.logical_and(key_mask, ops.squeeze(blocks.cut_keys(visible.key_mask[:, :, None]), -1))
        query_mask = visible.query_mask
        if query_mask is not None:
            query_mask = _merge_batch(ops.squeeze(blocks.cut_rows(query_mask[:, :, None]), -1), batch)
        pair_mask = self.sees(blocks.row_positions[:, None], keys)[None, None]
        if visible.pair_mask is not None:
            pair_mask = ops.logical_and(pair_mask, _fold(blocks.cut_pairs(visible.pair_mask), batch))
        if visible.rule is not None:
            pair_mask = ops.logical_and(pair_mask, _seen_by_rule(blocks, visible, batch))
        return Visibility(
            query_places=blocks.row_positions,
            key_places=keys,
            query_mask=query_mask,
            key_mask=_merge_batch(key_mask, batch),
            pair_mask=pair_mask,
            causal=visible.causal,
            heads=True,
            blocks=blocks.count,
        )


def _seen_by_rule(blocks, visible, batch):
    """Returns what the layer's `VisibilityRule` lets see within the blocks, [B · C, N or 1, R, K]."""
    rows, columns = (
        {name: each[..., None] for name, each in vectors().items() if name in visible.inputs}
        for vectors in (visible.query_vectors, visible.key_vectors)
    )
    cut = {name: blocks.cut_rows(each) for name, each in rows.items()}
    cut |= {name: blocks.cut_keys(each) for name, each in columns.items()}
    inputs = {name: _merge_batch(ops.squeeze(each, -1), batch) for name, each in cut.items()}
    for name, each in visible.inputs.items():
        if name not in cut:  # one for a sequence
            inputs[name] = _merge_batch(ops.broadcast_to(each[:, None], (ops.shape(each)[0], blocks.count)), batch)
    numbers = ops.broadcast_to(ops.arange(batch, dtype="int32")[:, None], (batch, blocks.count))
    positions = blocks.first_keys()[:, None] + blocks.row_positions, blocks.key_positions()
    return visible.seen_by_rule(
        _merge_batch(numbers, batch), *(_merge_batch(each[None], batch) for each in positions), inputs
    )


def _merge_batch(tensor, batch):
    """Returns [B · C, ...] from [B or 1, C, ...]."""
    _, count, *rest = ops.shape(tensor)
    if tensor.shape[0] == 1:
        tensor = ops.broadcast_to(tensor, (batch, count, *rest))
    return ops.reshape(tensor, (batch * count, *rest))


def _fold(tensor, batch):
    """Returns [B · C, N, R, D] from [B or 1, N, C, R, D]."""
    return _merge_batch(ops.swapaxes(tensor, 1, 2), batch)


def _unfold(tensor, batch, count):
    """Returns [B, N, C, R, D] from [B · C, N, R, D]."""
    return ops.swapaxes(ops.reshape(tensor, (batch, count, *ops.shape(tensor)[1:])), 1, 2)
