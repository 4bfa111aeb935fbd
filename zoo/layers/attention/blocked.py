"""Attention of blocks of queries to windows of keys, at the cost of the windows alone."""

import dataclasses

from keras import ops

from zoo.layers.attention.multi_head import MultiHeadAttention
from zoo.layers.attention.query_blocks import QueryBlocks
from zoo.layers.core.graphs import axis_size
from zoo.layers.core.masks import rank_4
from zoo.layers.execution.plan import has_zero, plan
from zoo.layers.visibility.base import FormerNames, Pairs, VisibilityRule
from zoo.layers.visibility.visibility import Visibility


class BlockedAttention(FormerNames, MultiHeadAttention):
    """Base of multi-head attention in which a query attends only to keys near its own position.

    The results are those of `MultiHeadAttention(visibility=rule)`. Where the backend computes large attention in tiles,
    so does this layer. Otherwise it cuts the queries into blocks, each with the window of keys to which its queries may
    attend, and moves the blocks to the batch axis: scores outside the windows are never computed. Scores, positions,
    masks, biases, dropout and fused kernels then act on each block. Positions that act on scores must depend on
    distances alone, since they are computed once for all blocks.

    A subclass overrides `rule` or `allows`, and `blocks`.

    Args:
        *args: Sizes of `MultiHeadAttention`.
        **kwargs: Other options of `MultiHeadAttention`.

    Raises:
        ValueError: For a score that depends on all keys at once.
    """

    rule: VisibilityRule | None = None
    supports_choosing_rules = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.needs_all_keys:
            raise ValueError(
                f"`score` of {type(self).__name__} must not depend on all keys at once, as LocationScore does: a block "
                f"contains only some of them. Received: score={self.score!r}."
            )

    @property
    def effective_rule(self):
        if self.rule is None or type(self).allows is not BlockedAttention.allows:
            return None
        return self.rule if self.visibility is None else self.rule & self.visibility

    def allows(self, query_positions, key_positions):
        """Returns whether a query, at [T, 1], may attend to a key, at [S], if nothing is masked, boolean [T, S]."""
        if self.rule is None:
            raise NotImplementedError(f"{type(self).__name__} must override `allows`.")
        return self.rule.allows(Pairs(0, 0, query_positions, key_positions))

    def blocks(self, length, start, causal):
        """Returns the `QueryBlocks`, whose windows contain all keys to which their queries may attend.

        T is an integer or, if unknown, a scalar tensor; `start` is the position of the first query, a scalar tensor.
        """
        raise NotImplementedError(f"{type(self).__name__} must override `blocks`.")

    def attend(self, query, memory, visibility, attention_bias, return_attention_scores, training):
        with_rule = self._with_rule(visibility)
        if self._needs_no_blocks(query, memory, with_rule, attention_bias):
            return super().attend(query, memory, with_rule, attention_bias, return_attention_scores, training)
        batch, _, length, _ = ops.shape(query)
        keys = ops.shape(memory["value"])[-2]
        blocks = self._cheapest_blocks(length, keys, ops.sum(visibility.query_positions[:1]), visibility.causal)
        results = super().attend(
            _fold(blocks.cut_rows(query), batch),
            {name: _fold(blocks.cut_keys(memory[name]), batch) for name in ("key", "value")},
            self._visibility_in_blocks(blocks, visibility, batch),
            None if attention_bias is None else _fold(blocks.cut_pairs(rank_4(attention_bias)), batch),
            return_attention_scores,
            training,
        )
        results = {name: _unfold(tensor, batch, blocks.count) for name, tensor in results.items()}
        joined = {name: blocks.join_rows(results[name], length) for name in ("output", "any_visible")}
        if return_attention_scores:
            joined["weights"] = blocks.spread(results["weights"], length, keys)
        return joined

    def _with_rule(self, visibility):
        """Returns the visibility with the layer's own rule, unless a subclass overrides `allows`."""
        if self.effective_rule is None:
            return visibility
        return dataclasses.replace(
            visibility, rule=self.rule if visibility.rule is None else self.rule & visibility.rule
        )

    def _needs_no_blocks(self, query, memory, visibility, attention_bias):
        """Returns whether blocks are unnecessary: for no pairs, a rolling cache (one window), or the path `tiles`."""
        keys = memory["value"].shape[-2]
        if visibility.rolled or has_zero((query.shape[0], query.shape[2], keys)):
            return True
        if self.effective_rule is None or self.implementation not in ("auto", "blockwise"):
            return False
        return plan(self, query.shape, keys, visibility, biased=attention_bias is not None).path == "tiles"

    def _cheapest_blocks(self, length, keys, start, causal):
        """Returns the `blocks`, or a single block if it is known to have no more pairs than they have."""
        blocks = self.blocks(length, start, causal)
        is_known = isinstance(length, int) and isinstance(keys, int)
        if is_known and length * keys <= blocks.count * blocks.rows * blocks.window:
            return QueryBlocks.whole(length, keys, start)
        return blocks

    def _visibility_in_blocks(self, blocks, visibility, batch):
        """Returns the visibility within the blocks, whose batch axis is B · C."""
        keys = ops.arange(blocks.window, dtype="int32")
        positions = blocks.key_positions()
        key_mask = ops.logical_and(positions >= 0, positions < axis_size(visibility.key_positions, 0))[None]
        if visibility.key_mask is not None:
            key_mask = ops.logical_and(key_mask, ops.squeeze(blocks.cut_keys(visibility.key_mask[:, :, None]), -1))
        query_mask = visibility.query_mask
        if query_mask is not None:
            query_mask = _merge_batch(ops.squeeze(blocks.cut_rows(query_mask[:, :, None]), -1), batch)
        pair_mask = self.allows(blocks.row_positions[:, None], keys)[None, None]
        if visibility.pair_mask is not None:
            pair_mask = ops.logical_and(pair_mask, _fold(blocks.cut_pairs(visibility.pair_mask), batch))
        if visibility.rule is not None:
            pair_mask = ops.logical_and(pair_mask, _rule_mask_in_blocks(blocks, visibility, batch))
        return Visibility(
            query_places=blocks.row_positions,
            key_places=keys,
            query_mask=query_mask,
            key_mask=_merge_batch(key_mask, batch),
            pair_mask=pair_mask,
            causal=visibility.causal,
            heads=True,
            blocks=blocks.count,
        )


def _rule_mask_in_blocks(blocks, visibility, batch):
    """Returns which pairs of the blocks the option `visibility` allows, boolean [B · C, N or 1, R, K]."""
    rows, columns = (
        {name: tensor[..., None] for name, tensor in vectors().items() if name in visibility.inputs}
        for vectors in (visibility.query_vectors, visibility.key_vectors)
    )
    cut = {name: blocks.cut_rows(tensor) for name, tensor in rows.items()}
    cut |= {name: blocks.cut_keys(tensor) for name, tensor in columns.items()}
    inputs = {name: _merge_batch(ops.squeeze(tensor, -1), batch) for name, tensor in cut.items()}
    for name, tensor in visibility.inputs.items():
        if name not in cut:  # an integer for each sequence
            inputs[name] = _merge_batch(ops.broadcast_to(tensor[:, None], (ops.shape(tensor)[0], blocks.count)), batch)
    sequences = ops.broadcast_to(ops.arange(batch, dtype="int32")[:, None], (batch, blocks.count))
    positions = blocks.first_keys()[:, None] + blocks.row_positions, blocks.key_positions()
    return visibility.rule_mask(
        _merge_batch(sequences, batch), *(_merge_batch(tensor[None], batch) for tensor in positions), inputs
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
