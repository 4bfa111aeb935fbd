"""Masks and biases: how they are checked, combined and applied.

Axes: B batch, N heads, T query length, S key/value length. In a mask, True means "may attend".
"""

import dataclasses
import functools
from typing import Any

from keras import backend, ops

from zoo.layers.core.kernels import LOWEST_SCORE
from zoo.layers.core.lazy import Lazy, LazyPositions, number_of, value_of
from zoo.layers.visibility.base import KEY_INPUTS, QUERY_INPUTS, SEQUENCE_INPUTS, Pairs
from zoo.layers.visibility.causal import under_causal_mask

LARGEST_BIAS = 3e38  # added to a score, it is above `LOWEST_SCORE`
_NO_SEGMENT = -(2**31)
_FIELDS = {"query_positions": "query_places", "key_positions": "key_places"}


def check_mask(mask: Any, name: str, ranks: tuple[int, ...]) -> Any:
    """Returns a boolean or integer mask (non-zero means "may attend") as a boolean tensor, or `None`.

    Raises:
        ValueError: If the mask is floating point (an additive mask is a bias) or has another rank.
    """
    if mask is None:
        return None
    mask = ops.convert_to_tensor(mask)
    if backend.is_float_dtype(backend.standardize_dtype(mask.dtype)):
        raise ValueError(
            f"`{name}` must be boolean (True = may attend); additive masks go to `attention_bias`. "
            f"Received: dtype={backend.standardize_dtype(mask.dtype)}."
        )
    if len(mask.shape) not in ranks:
        raise ValueError(
            f"`{name}` must have rank {' or '.join(map(str, ranks))}. Received: shape={tuple(mask.shape)}."
        )
    return ops.cast(mask, "bool")


def check_batch(masks: dict[str, Any], batch: int | None) -> None:
    """Checks that masks, by name, have the batch size of the query, or 1; others would make the output larger.

    Raises:
        ValueError: If one has another.
    """
    for name, mask in masks.items():
        if mask is None:
            continue
        size = next(iter(getattr(mask, "shape", ())), None)
        if sizes_differ(size, batch) and size != 1:
            wanted = batch if batch == 1 else f"{batch}, or 1"
            raise ValueError(
                f"`{name}` must have the batch size of `query`, {wanted}. Received: shape={tuple(mask.shape)}."
            )


@dataclasses.dataclass(frozen=True)
class Visibility:
    """Which query may attend to which key, as separate masks, so that a chunk of queries needs only its own rows.

    Args:
        query_places: Positions of the queries among the keys, int32 [T], also `LazyPositions`.
        key_places: Positions of the keys, int32 [S], likewise.
        query_mask: Boolean [B, T], or `None`.
        key_mask: Boolean [B, S], or `None`.
        pair_mask: Boolean [B, T, S], or with heads [B, 1, T, S] or [B, N, T, S]; or `None`.
        causal: Whether a query sees only the keys up to its own position.
        heads: Whether the scores have a head axis.
        rule: The layer's `VisibilityRule`, or `None`.
        inputs: What the rule must be told, by name, int32: [B, T] for each query, [B, S] for each key, [B] for each
            sequence.
        sizes: B, also `Lazy`, and N.
        rolled: Whether keys are not at the positions from 0 on, as in a rolling cache.
        aligned: Whether query t is known to be at the position of key t, and there are as many of both.
        has_keys: Whether there is known to be a key, also if their number is unknown.
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
        """Returns the visibility with all positions computed, for use in loops, whose tensors are their own."""
        sizes = self.sizes if self.rule is None else (value_of(self.sizes[0]), self.sizes[1])
        return dataclasses.replace(self, query_places=self.query_positions, key_places=self.key_positions, sizes=sizes)

    @property
    def may_be_cut(self):
        """Whether parts of the queries and of the keys may be taken, by their positions."""
        return not self.rolled

    def rolled_to(self, key_positions):
        """Returns the visibility with the keys at positions, int32 [S], from which the queries' count already."""
        return dataclasses.replace(self, key_places=key_positions, rolled=True, aligned=False)

    @property
    def may_hide_all(self):
        """Whether there may be a query that sees no key, also because there may be no key."""
        return self.hides or not (self.has_keys or self.num_keys is not None)

    @property
    def is_plainly_causal(self):
        """Whether each query sees the keys up to its own, and nothing else is masked: then all see some."""
        others = (self.query_mask, self.key_mask, self.pair_mask, self.rule)
        return self.causal and self.aligned and all(part is None for part in others)

    @property
    def hides(self):
        """Whether anything may be masked."""
        masks_one_side = self.query_mask is not None or self.key_mask is not None
        return masks_one_side or self.causal or self.pair_mask is not None or self.rule is not None

    @property
    def chooses(self):
        """Whether what a query sees depends on its scores."""
        return self.rule is not None and self.rule.chooses

    def chosen_by(self, scores):
        """Returns the visibility after the rule's choice, if it makes one, by scores [B, (N,) T, S]."""
        if not self.chooses:
            return self
        seen = ops.logical_and(self.mask(), ops.ones_like(scores, dtype="bool"))
        chosen = self.rule.choose(scores, seen, self.query_positions)
        mask = chosen if self.pair_mask is None else ops.logical_and(chosen, self.pair_mask)
        return dataclasses.replace(self, pair_mask=mask)

    def mask(self):
        """Returns the conjunction of all masks, which broadcasts to the scores, or `None` if nothing is masked."""
        return self._mask.value()

    @functools.cached_property
    def _mask(self):
        return Lazy(self._conjunction)

    def _conjunction(self):
        conditions = []
        heads = (None,) * self.heads
        if self.query_mask is not None:
            conditions.append(self.query_mask[(slice(None), *heads, slice(None), None)])
        if self.key_mask is not None:
            conditions.append(self.key_mask[(slice(None), *heads, None)])
        if self.causal:
            causal = self.key_positions <= self.query_positions[:, None]
            conditions.append(causal[(None, *heads)])
        if self.pair_mask is not None:
            conditions.append(self.pair_mask)
        if self.rule is not None:
            conditions.append(self._seen_by_rule())
        return functools.reduce(ops.logical_and, conditions) if conditions else None

    def _seen_by_rule(self):
        batch = ops.arange(value_of(self.sizes[0]), dtype="int32")
        return self.seen_by_rule(batch, self.query_positions[None], self.key_positions[None], self.inputs)

    def seen_by_rule(self, batch, query_positions, key_positions, inputs):
        """Returns what the rule lets see, boolean [B or 1, N or 1, T or 1, S or 1], or without the axis of heads.

        Args:
            batch: Numbers of the sequences, [B].
            query_positions: [B or 1, T].
            key_positions: [B or 1, S].
            inputs: As in `inputs`.
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
        seen = rank_4(ops.cast(self.rule.sees(pairs), "bool"))
        return seen if self.heads else seen[:, 0]

    def limited_to(self, max_keys):
        """Returns the visibility without the keys after `max_keys`, if there may be any; `None` is no limit."""
        if max_keys is None:
            return self
        if isinstance(max_keys, int) and self.num_keys is not None and self.num_keys <= max_keys:
            return self
        mask = self.key_positions[None] < max_keys
        return dataclasses.replace(
            self, key_mask=mask if self.key_mask is None else ops.logical_and(mask, self.key_mask)
        )

    def query_vectors(self):
        """Returns by name what has a number for each query, [T] or [B, T]."""
        vectors = {"query_positions": self.query_positions, "query_mask": self.query_mask}
        return _present({**vectors, **{name: self.inputs.get(name) for name in QUERY_INPUTS}})

    def key_vectors(self):
        """Returns by name what has a number for each key, [S] or [B, S]."""
        vectors = {"key_positions": self.key_positions, "key_mask": self.key_mask}
        return _present({**vectors, **{name: self.inputs.get(name) for name in KEY_INPUTS}})

    def of(self, vectors, pair_mask=None):
        """Returns the visibility of some of the queries and keys, from their vectors, those that are changed."""
        inputs = {name: vectors.get(name, tensor) for name, tensor in self.inputs.items()}
        own = {_FIELDS.get(name, name): vectors[name] for name in vectors if name not in self.inputs}
        return dataclasses.replace(self, pair_mask=pair_mask, inputs=inputs, aligned=False, **own)

    def rows(self):
        """Returns by name what has a row for each query, with the queries on the last axis but one."""
        rows = {name: vector[..., None] for name, vector in self.query_vectors().items()}
        return rows if self.pair_mask is None else {**rows, "pair_mask": self.pair_mask}

    def at(self, rows):
        """Returns the visibility of some of the queries, from what `rows` returned, cut to those."""
        vectors = {name: ops.squeeze(rows[name], -1) for name in self.query_vectors()}
        return self.of(vectors, rows.get("pair_mask"))

    def seen(self):
        """Returns which query sees any key, boolean [B or 1, (N or 1,) T or 1, 1]; `None` if all see some."""
        if not self.may_hide_all:
            return None
        if self.hides:
            return ops.any(self.mask(), axis=-1, keepdims=True)
        return ops.any(self.key_positions[(None,) * (2 + self.heads)] >= 0, axis=-1, keepdims=True)

    def rows_of(self, seen, dtype):
        """Returns what `seen` did with a row for each query, 1 and 0 in the given dtype."""
        return ops.cast(seen, dtype) * ops.ones_like(self.query_positions[:, None], dtype=dtype)


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
    inputs=None,
    sizes=(1, 1),
    has_keys=False,
):
    """Returns the `Visibility` that the masks of a call describe; for their shapes see `BaseAttention`.

    The lengths are (T, S), and `first_position` is that of the first query among the keys; all may be `Lazy`. With
    `heads`, scores have a head axis; with `has_keys` there is known to be a key. The `rule` is the layer's, or `None`;
    `inputs`, by name, are what the call tells it, or `None` each; `sizes` are B and N.

    Raises:
        ValueError: For a floating point mask, a mask of the wrong rank or length, or if the call does not tell what the
            rule needs.
    """
    queries, keys = lengths
    query_places = LazyPositions(first_position, queries)
    if inputs or rule is not None:
        inputs = _check_inputs(rule, inputs or {}, lengths, query_places)
    if causal and rule is not None and rule.replaces_causal:
        rule, causal = under_causal_mask(rule), False
    return Visibility(
        query_places=query_places,
        key_places=LazyPositions(0, keys),
        query_mask=query_mask if query_mask is None else _check_sequence_mask(query_mask, "query_mask", "T", queries),
        key_mask=combined_value_mask(value_mask, key_mask, keys),
        pair_mask=attention_mask if attention_mask is None else _check_pair_mask(attention_mask, lengths, heads),
        causal=causal or (isinstance(keys, int) and keys == 0),  # without keys, no query sees any
        heads=heads,
        rule=rule,
        inputs=inputs or {},
        sizes=sizes,
        aligned=isinstance(first_position, int) and first_position == 0 and isinstance(keys, int) and queries == keys,
        has_keys=has_keys,
    )


def _check_pair_mask(mask, lengths, heads):
    """Returns the mask of pairs as a boolean tensor [B, T, S], or with heads [B, 1 or N, T, S]."""
    queries, keys = lengths
    mask = check_mask(mask, "attention_mask", (3, 4) if heads else (3,))
    if heads and len(mask.shape) == 3:
        mask = mask[:, None]
    if mask.shape[-2] == 1:
        shape = ops.shape(mask)
        mask = ops.broadcast_to(mask, (*shape[:-2], value_of(queries), shape[-1]))
    *_, num_rows, num_columns = mask.shape
    if sizes_differ(num_rows, queries) or (sizes_differ(num_columns, keys) and num_columns != 1):
        raise ValueError(
            f"`attention_mask` must be [..., T, S], T = {queries}, S = {keys}. Received: shape={tuple(mask.shape)}."
        )
    return mask


def _present(tensors):
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def _check_inputs(rule, inputs, lengths, query_places):
    """Returns what a rule must be told, by name, int32, from what the call tells, by name, or `None` each.

    Raises:
        ValueError: If something is missing, or not needed, or is no tensor of integers of its shape.
    """
    needs, given = () if rule is None else rule.needs, _present(inputs)
    for name in given:
        if name not in needs:
            raise ValueError(f"`{name}` is for a layer whose `visibility` needs it. Received: visibility={rule!r}.")
    shapes = {name: ("[B, T]", lengths[0]) for name in QUERY_INPUTS} | {
        name: ("[B, S]", lengths[1]) for name in KEY_INPUTS
    }
    checked = {name: _check_integers(given[name], name, *shapes.get(name, ("[B]", None))) for name in given}
    if "query_segment_ids" in needs and "query_segment_ids" not in checked and "segment_ids" in checked:
        checked["query_segment_ids"] = _at_positions(
            checked["segment_ids"], value_of(query_places), value_of(lengths[1])
        )
    missing = [name for name in needs if name not in checked]
    if missing:
        raise ValueError(f"The call must tell `{missing[0]}`, which the layer's `visibility` needs: {rule!r}.")
    return checked


def _at_positions(ids, positions, length):
    """Returns the ids of keys [B, S] at the positions of queries [T], [B, T]; there is none outside of the keys."""
    ids = ops.pad(ids, [[0, 0], [0, 1]], constant_values=_NO_SEGMENT)
    inside = ops.logical_and(positions >= 0, positions < length)
    return ops.take(ids, ops.where(inside, positions, length), axis=1)


def _check_integers(tensor, name, shape, length):
    tensor = ops.convert_to_tensor(tensor)
    dtype = backend.standardize_dtype(tensor.dtype)
    wrong = len(tensor.shape) != shape.count(",") + 1 or (length is not None and sizes_differ(tensor.shape[1], length))
    if not backend.is_int_dtype(dtype) or wrong:
        raise ValueError(f"`{name}` must be integers {shape}. Received: shape={tuple(tensor.shape)}, dtype={dtype}.")
    return ops.cast(tensor, "int32")


def sizes_differ(first, second):
    """Returns whether two sizes are known and differ."""
    return isinstance(first, int) and isinstance(second, int) and first != second


def _check_sequence_mask(mask, name, axis, length):
    """Returns the mask of a sequence as a boolean tensor [B, length], or `None`."""
    mask = check_mask(mask, name, (2,))
    if mask is not None and sizes_differ(mask.shape[1], length):
        raise ValueError(f"`{name}` must be [B, {axis}], {axis} = {length}. Received: shape={tuple(mask.shape)}.")
    return mask


def combined_value_mask(value_mask, key_mask, length):
    """Returns the conjunction of the masks of values and of keys, boolean [B, S], or `None` if there is none.

    With a cache, S (`length`) counts everything in it; `None` if any length will do.

    Raises:
        ValueError: For a floating point mask, or a mask of the wrong rank or length.
    """
    if value_mask is None and key_mask is None:
        return None
    masks = [
        _check_sequence_mask(mask, name, "S", length)
        for name, mask in (("value_mask", value_mask), ("key_mask", key_mask))
        if mask is not None
    ]
    return functools.reduce(ops.logical_and, masks)


def slice_mask(mask, start, length):
    """Returns `mask[:, start : start + length]`, [B, length] from [B, S], or `None` for `None`."""
    if mask is None:
        return None
    return ops.take(mask, ops.arange(length, dtype="int32") + start, axis=1)


def zero_masked(inputs, mask):
    """Returns `inputs` [B, L, D] with zeros where `mask` [B, L] is False: masked inputs may be NaN, and so is 0 · NaN.

    Either may be `None`.
    """
    if inputs is None or mask is None:
        return inputs
    return ops.where(mask[:, :, None], inputs, ops.cast(0.0, inputs.dtype))


def _softmax(scores):
    # Keras' softmax warns of an axis of size 1, but a single key is nothing unusual: a decoder starts with one.
    if scores.shape[-1] == 1:
        return ops.exp(ops.log_softmax(scores, axis=-1))
    return ops.softmax(scores, axis=-1)


def masked_softmax(scores, mask=None):
    """Returns the softmax of `scores` [..., T, S] over S, restricted to `mask`, in their dtype.

    It is computed in float32 or wider. A row without any allowed position is all zeros, with finite gradients.
    """
    dtype = backend.standardize_dtype(scores.dtype)
    wide = backend.result_type(dtype, "float32")
    scores = ops.cast(scores, wide)
    if mask is None:
        return ops.cast(_softmax(scores), dtype)
    # A finite fill keeps the softmax of an empty row finite; the second `where` makes that row zero.
    weights = _softmax(ops.where(mask, scores, ops.cast(LOWEST_SCORE, wide)))
    return ops.cast(ops.where(mask, weights, ops.cast(0.0, wide)), dtype)


def check_bias(bias, shape):
    """Returns a bias in float32 or wider, limited to ± `LARGEST_BIAS`.

    A bias hides nothing, only masks do: what a row may see shares its weight also if all of it has a bias of −∞ (which
    −1e9 is in float16), and evenly, since such a bias leaves nothing of the scores. +∞ takes all the weight.

    Unknown sizes in the shape of the scores are `None`.

    Raises:
        ValueError: If it is not a float tensor, or does not broadcast to that shape.
    """
    bias = ops.convert_to_tensor(bias)
    dtype = backend.standardize_dtype(bias.dtype)
    if not backend.is_float_dtype(dtype):
        raise ValueError(
            f"`attention_bias` must be floating point; boolean masks go to `attention_mask`. Received: dtype={dtype}."
        )
    pairs = zip(reversed(bias.shape), reversed(shape), strict=False)
    if len(bias.shape) > len(shape) or any(sizes_differ(size, wanted) and size != 1 for size, wanted in pairs):
        raise ValueError(
            f"`attention_bias` must broadcast to the scores, {shape}. Received: shape={tuple(bias.shape)}."
        )
    return ops.clip(ops.cast(bias, backend.result_type(dtype, "float32")), -LARGEST_BIAS, LARGEST_BIAS)


def rank_4(bias):
    """Returns a bias that broadcasts to the scores, with all four axes, [B or 1, N or 1, T or 1, S or 1]."""
    return ops.reshape(bias, (*(1,) * (4 - len(bias.shape)), *ops.shape(bias)))


def repeat_bias_rows(bias, length):
    """Returns a bias that broadcasts to the scores, with a row for each of `length` queries."""
    bias = bias[None] if len(bias.shape) == 1 else bias
    if bias.shape[-2] != 1:
        return bias
    shape = ops.shape(bias)
    return ops.broadcast_to(bias, (*shape[:-2], length, shape[-1]))
