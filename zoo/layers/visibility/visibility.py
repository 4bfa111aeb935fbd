"""The visibility of a call: its masks, the causal mask and the layer's rule in one object.

Axes: B batch, N heads, T query length, S key/value length. In a mask, True means "may attend".
"""

import dataclasses
import functools
from typing import Any

from keras import backend, ops

from zoo.layers.core.graphs import computed_once
from zoo.layers.core.lazy import Lazy, LazyPositions, number_of, value_of
from zoo.layers.core.masks import (
    check_mask,
    check_sequence_mask,
    combined_value_mask,
    conjunction,
    rank_4,
    sizes_differ,
)
from zoo.layers.visibility.base import KEY_INPUTS, QUERY_INPUTS, SEQUENCE_INPUTS, Pairs
from zoo.layers.visibility.sequences import under_causal_mask
from zoo.row_selection import take

_NO_SEGMENT = -(2**31)
_FIELDS = {"query_positions": "query_places", "key_positions": "key_places"}


@dataclasses.dataclass(frozen=True)
class Visibility:
    """Which query may attend to which key, as separate masks, so that a chunk of queries needs only its own rows.

    Args:
        query_places: Positions of the queries among the keys, int32 [T] or `LazyPositions`.
        key_places: Positions of the keys, int32 [S] or `LazyPositions`.
        query_mask: Boolean [B, T], or `None`.
        key_mask: Boolean [B, S], or `None`.
        pair_mask: Boolean [B, T, S], or with heads [B, 1, T, S] or [B, N, T, S]; or `None`.
        causal: Whether a query attends only to the keys up to its own position.
        heads: Whether the scores have a head axis.
        rule: The layer's `VisibilityRule`, or `None`.
        inputs: Mask inputs that the rule requires, by name, int32: [B, T] for each query, [B, S] for each key, [B] for
            each sequence.
        sizes: B, which may be `Lazy`, and N.
        rolled: Whether the keys have other positions than 0 … S − 1, as in a rolling cache.
        aligned: Whether it is known that T = S and that query t has the position of key t.
        has_keys: Whether there is at least one key, even if their number is unknown.
        blocks: Number of blocks in a sequence, if blocks are stacked on the batch axis, each with a window of keys from
            whose start its positions count; or `None`.
    """

    query_places: Any
    key_places: Any
    query_mask: Any = None
    key_mask: Any = None
    pair_mask: Any = None
    causal: bool = False
    heads: bool = False
    rule: Any = None
    inputs: dict[str, Any] = dataclasses.field(default_factory=dict)
    sizes: tuple[Any, Any] = (1, 1)
    rolled: bool = False
    aligned: bool = False
    has_keys: bool = False
    blocks: Any = None

    @functools.cached_property
    def facts(self):
        """All facts on which a plan may depend, hashable."""
        rule = None if self.rule is None else (self.rule.skips, self.rule.span, self.rule.chooses)
        blocks = self.blocks if self.blocks is None or isinstance(self.blocks, int) else "unknown"
        masked = self.query_mask is None, self.key_mask is None, self.pair_mask is None
        return self.causal, self.aligned, self.rolled, masked, blocks, rule

    @property
    def query_positions(self):
        """Positions of the queries among the keys, int32 [T]."""
        return value_of(self.query_places)

    @property
    def key_positions(self):
        """Positions of the keys, int32 [S]."""
        return value_of(self.key_places)

    @property
    def num_keys(self):
        """The number of keys, or `None` if it is unknown."""
        return number_of(self.key_places)

    def computed(self):
        """Returns the visibility with all positions computed: tensors computed in a loop cannot be read outside it."""
        sizes = self.sizes if self.rule is None else (value_of(self.sizes[0]), self.sizes[1])
        return dataclasses.replace(self, query_places=self.query_positions, key_places=self.key_positions, sizes=sizes)

    @property
    def may_be_cut(self):
        """Whether queries and keys may be cut into parts, by their positions."""
        return not self.rolled and self.blocks is None

    def rolled_to(self, key_positions):
        """Returns the visibility with the keys at other positions, int32 [S], and the queries at theirs."""
        return dataclasses.replace(self, key_places=key_positions, rolled=True, aligned=False)

    @functools.cached_property
    def may_hide_all(self):
        """Whether all keys of a query may be masked, or there may be no key."""
        return self.hides or not (self.has_keys or self.num_keys is not None)

    @functools.cached_property
    def is_plainly_causal(self):
        """Whether only the causal mask hides keys, so that every query attends to at least one."""
        others = (self.query_mask, self.key_mask, self.pair_mask, self.rule)
        return self.causal and self.aligned and all(part is None for part in others)

    @functools.cached_property
    def hides(self):
        """Whether anything may be masked."""
        masks_one_side = self.query_mask is not None or self.key_mask is not None
        return masks_one_side or self.causal or self.pair_mask is not None or self.rule is not None

    @property
    def chooses(self):
        """Whether the allowed keys depend on the scores."""
        return self.rule is not None and self.rule.chooses

    def chosen_by(self, scores):
        """Returns the visibility with the rule's choice of keys, if it chooses, by scores [B, (N,) T, S]."""
        if not self.chooses:
            return self
        allowed = ops.logical_and(self.mask(), ops.ones_like(scores, dtype="bool"))
        chosen = self.rule.choose(scores, allowed, self.query_positions)
        mask = chosen if self.pair_mask is None else ops.logical_and(chosen, self.pair_mask)
        return dataclasses.replace(self, pair_mask=mask)

    def mask(self):
        """Returns the conjunction of all masks, which broadcasts to the scores, or `None` if there are no masks."""
        return self._mask.value() if self.hides else None

    @functools.cached_property
    def _mask(self):
        return Lazy(self._conjunction)

    def _conjunction(self):
        heads = (None,) * self.heads
        conditions = [computed_once(("mask", self.heads), self._sequence_mask, self.query_mask, self.key_mask)]
        if self.causal:
            causal = self.key_positions <= self.query_positions[:, None]
            conditions.append(causal[(None, *heads)])
        if self.pair_mask is not None:
            conditions.append(self.pair_mask)
        if self.rule is not None:
            conditions.append(self._rule_mask())
        return conjunction(*conditions)

    def _sequence_mask(self, query_mask, key_mask):
        """Returns the conjunction of the masks of the sequences, which is the same in many layers, or `None`."""
        heads = (None,) * self.heads
        return conjunction(
            None if query_mask is None else query_mask[(slice(None), *heads, slice(None), None)],
            None if key_mask is None else key_mask[(slice(None), *heads, None)],
        )

    def _rule_mask(self):
        batch = ops.arange(value_of(self.sizes[0]), dtype="int32")
        return self.rule_mask(batch, self.query_positions[None], self.key_positions[None], self.inputs)

    def rule_mask(self, batch, query_positions, key_positions, inputs):
        """Returns the mask of the rule, boolean [B or 1, N or 1, T or 1, S or 1], or without the axis of heads.

        Args:
            batch: Indices of the sequences, [B].
            query_positions: [B or 1, T].
            key_positions: [B or 1, S].
            inputs: Mask inputs by name.
        """
        axes = {name: (slice(None), None, slice(None), None) for name in QUERY_INPUTS}
        axes |= {name: (slice(None), None, None) for name in KEY_INPUTS}
        axes |= {name: (slice(None), None, None, None) for name in SEQUENCE_INPUTS}
        pairs = Pairs(
            batch[:, None, None, None],
            ops.arange(self.sizes[1], dtype="int32")[:, None, None],
            query_positions[:, None, :, None],
            key_positions[:, None, None],
            {name: tensor[axes[name]] for name, tensor in inputs.items()},
        )
        mask = rank_4(ops.cast(self.rule.allows(pairs), "bool"))
        return mask if self.heads else mask[:, 0]

    def limited_to(self, max_keys):
        """Returns the visibility with the keys after the first `max_keys` masked; `None` means no limit."""
        if max_keys is None:
            return self
        if isinstance(max_keys, int) and self.num_keys is not None and self.num_keys <= max_keys:
            return self
        mask = self.key_positions[None] < max_keys
        return dataclasses.replace(
            self, key_mask=mask if self.key_mask is None else ops.logical_and(mask, self.key_mask)
        )

    def query_vectors(self):
        """Returns the tensors with an element for each query, [T] or [B, T], by name."""
        vectors = {"query_positions": self.query_positions, "query_mask": self.query_mask}
        return _without_none({**vectors, **{name: self.inputs.get(name) for name in QUERY_INPUTS}})

    def key_vectors(self):
        """Returns the tensors with an element for each key, [S] or [B, S], by name."""
        vectors = {"key_positions": self.key_positions, "key_mask": self.key_mask}
        return _without_none({**vectors, **{name: self.inputs.get(name) for name in KEY_INPUTS}})

    def of_vectors(self, vectors, pair_mask=None):
        """Returns the visibility of some queries and keys, from their parts of `query_vectors` and `key_vectors`."""
        inputs = {name: vectors.get(name, tensor) for name, tensor in self.inputs.items()}
        fields = {_FIELDS.get(name, name): vectors[name] for name in vectors if name not in self.inputs}
        return dataclasses.replace(self, pair_mask=pair_mask, inputs=inputs, aligned=False, **fields)

    def rows(self):
        """Returns the tensors with a row for each query, which are on the last axis but one, by name."""
        rows = {name: vector[..., None] for name, vector in self.query_vectors().items()}
        return rows if self.pair_mask is None else {**rows, "pair_mask": self.pair_mask}

    def of_rows(self, rows):
        """Returns the visibility of some queries, from their parts of `rows`."""
        vectors = {name: ops.squeeze(rows[name], -1) for name in self.query_vectors()}
        return self.of_vectors(vectors, rows.get("pair_mask"))

    def any_visible(self):
        """Returns which queries have an unmasked key, boolean [B or 1, (N or 1,) T or 1, 1]; `None` if all have."""
        if not self.may_hide_all:
            return None
        if self.hides:
            return computed_once("any", lambda mask: ops.any(mask, axis=-1, keepdims=True), self.mask())
        return ops.any(self.key_positions[(None,) * (2 + self.heads)] >= 0, axis=-1, keepdims=True)

    def rows_of(self, any_visible, dtype):
        """Returns the result of `any_visible` broadcast to a row for each query, as 1 and 0 of a dtype."""
        return ops.cast(any_visible, dtype) * ops.ones_like(self.query_positions[:, None], dtype=dtype)


def build_visibility(
    lengths,
    first_position,
    query_mask=None,
    value_mask=None,
    key_mask=None,
    attention_mask=None,
    causal=False,
    heads=False,
    rule=None,
    sizes=(1, 1),
    has_keys=False,
    **mask_inputs,
):
    """Returns the `Visibility` of a call, from its masks; for their shapes see `BaseAttention`.

    The lengths are (T, S), and `first_position` is the position of the first query among the keys; all may be `Lazy`.
    With `heads`, scores have a head axis; with `has_keys`, there is at least one key. The `rule` is the layer's, or
    `None`, `mask_inputs` are those of the call, and `sizes` are B and N.

    Raises:
        ValueError: For a floating point mask, a mask of the wrong rank or length, or if a mask input that the rule
            requires is missing.
    """
    queries, keys = lengths
    query_places, inputs = LazyPositions(first_position, queries), {}
    if rule is not None or mask_inputs:
        inputs = _check_inputs(rule, mask_inputs, lengths, query_places)
    if causal and rule is not None and rule.replaces_causal:
        rule, causal = under_causal_mask(rule), False
    return Visibility(
        query_places=query_places,
        key_places=LazyPositions(0, keys),
        query_mask=query_mask if query_mask is None else check_sequence_mask(query_mask, "query_mask", "T", queries),
        key_mask=None if value_mask is key_mask is None else combined_value_mask(value_mask, key_mask, keys),
        pair_mask=attention_mask
        if attention_mask is None
        else _check_pair_mask(attention_mask, lengths, heads, sizes[1]),
        causal=causal or (isinstance(keys, int) and keys == 0),  # without keys, everything is masked
        heads=heads,
        rule=rule,
        inputs=inputs,
        sizes=sizes,
        aligned=isinstance(first_position, int) and first_position == 0 and isinstance(keys, int) and queries == keys,
        has_keys=has_keys,
    )


def _check_pair_mask(mask, lengths, heads, num_heads):
    """Returns the attention mask as a boolean tensor [B, T, S], or with heads [B, 1 or N, T, S]."""
    queries, keys = lengths
    mask = check_mask(mask, "attention_mask", (3, 4) if heads else (3,))
    if heads and len(mask.shape) == 3:
        mask = mask[:, None]
    if mask.shape[-2] == 1:
        shape = ops.shape(mask)
        mask = ops.broadcast_to(mask, (*shape[:-2], value_of(queries), shape[-1]))
    *leading, num_rows, num_columns = mask.shape
    if heads and sizes_differ(leading[1], num_heads) and leading[1] != 1:
        raise ValueError(
            f"`attention_mask` must be [B, T, S], [B, 1, T, S] or [B, N, T, S], N = {num_heads}. "
            f"Received: shape={tuple(mask.shape)}."
        )
    if sizes_differ(num_rows, queries) or (sizes_differ(num_columns, keys) and num_columns != 1):
        raise ValueError(
            f"`attention_mask` must be [..., T, S], T = {queries}, S = {keys}. Received: shape={tuple(mask.shape)}."
        )
    return mask


def _without_none(tensors):
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _check_inputs(rule, inputs, lengths, query_places):
    """Returns the checked mask inputs of a call, int32, by name, with the default of `query_segment_ids`.

    Raises:
        ValueError: If a mask input is missing or superfluous, or is not an integer tensor of the right shape.
    """
    needs, inputs = () if rule is None else rule.needs, _without_none(inputs)
    for name in inputs:
        if name not in needs:
            raise ValueError(f"`{name}` requires a layer whose `visibility` uses it. Received: visibility={rule!r}.")
    shapes = {name: ("[B, T]", lengths[0]) for name in QUERY_INPUTS} | {
        name: ("[B, S]", lengths[1]) for name in KEY_INPUTS
    }
    checked = {name: _check_integers(inputs[name], name, *shapes.get(name, ("[B]", None))) for name in inputs}
    if "query_segment_ids" in needs and "query_segment_ids" not in checked and "segment_ids" in checked:
        checked["query_segment_ids"] = _at_positions(
            checked["segment_ids"], value_of(query_places), value_of(lengths[1])
        )
    missing = [name for name in needs if name not in checked]
    if missing:
        raise ValueError(f"Pass `{missing[0]}` to the call: it is required by the layer's `visibility`, {rule!r}.")
    return checked


def _at_positions(ids, positions, length):
    """Returns the ids [B, T] of keys [B, S] at the positions of queries [T]; `_NO_SEGMENT` outside the keys."""
    ids = ops.pad(ids, [[0, 0], [0, 1]], constant_values=_NO_SEGMENT)
    inside = ops.logical_and(positions >= 0, positions < length)
    return take(ids, ops.where(inside, positions, length), axis=1)


def _check_integers(tensor, name, shape, length):
    tensor = ops.convert_to_tensor(tensor)
    dtype = backend.standardize_dtype(tensor.dtype)
    wrong = len(tensor.shape) != shape.count(",") + 1 or (length is not None and sizes_differ(tensor.shape[1], length))
    if not backend.is_int_dtype(dtype) or wrong:
        raise ValueError(f"`{name}` must be integers {shape}. Received: shape={tuple(tensor.shape)}, dtype={dtype}.")
    return ops.cast(tensor, "int32")
