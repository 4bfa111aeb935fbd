"""Copies of attention layers that record the steps of a call.

A copy shares the weights of its layer. Its class is a subclass in which the public steps of the layer (`project_query`,
`project_memory`, `compare`, `normalize`, `weighted_sum`, `project_output`) pass their results to a recorder. The record
is therefore correct even if a user's subclass overrides a step, and the layer itself does not change.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from zoo.inspection import formulas, graph
from zoo.layers import (
    BaseAttention,
    DifferentialAttention,
    LinearAttention,
    MultiHeadAttention,
    Positions,
    ScaledDotScore,
    Score,
)
from zoo.layers.attention.blocked import BlockedAttention
from zoo.layers.attention.query_blocks import QueryBlocks
from zoo.layers.attention.state_attention import StateAttention
from zoo.layers.scores.products import DotScore


@dataclass
class Recorder:
    """The state that the parts of a copy share during one call.

    Args:
        record: Called with the name of a step, its formula and its tensor.
        symbolic: Whether the call has symbolic tensors, to count operations.
        all_weights: Whether all weights are computed at once, instead of only those that the layer computes.
    """

    record: Callable[[str, str, Any], None]
    symbolic: bool = False
    all_weights: bool = True
    role: str = "query"
    """Whether queries or keys are projected."""
    key: Any = None
    """The last recorded key."""
    value: Any = None
    unscaled: Any = None
    """The query before the scale of a scaled dot product."""
    rotation: str | None = None
    """Formula of the rotation of the query or key."""
    unrotated: str = ""
    """Formula of the query or key without the rotation."""
    bias: Any = None
    part: int = 0
    """Number of the part of a head, in differential attention."""
    drops: bool = False
    """Whether dropout is active."""
    scores: Any = None
    """The last recorded scores."""
    scores_name: str = "scores"

    def record_scores(self, name: str, formula: str, scores: Any) -> Any:
        """Records scores, and returns them."""
        self.record(name, formula, scores)
        self.scores, self.scores_name = scores, name
        return scores


def recording_copy(layer: BaseAttention, recorder: Recorder) -> Any:
    """Returns a copy of a built attention layer that records its steps.

    The copy does not use chunks and fused kernels, whose intermediate results differ.
    """
    has_heads = isinstance(layer, MultiHeadAttention)
    mixins: tuple[type, ...] = (_RecordingHeads if has_heads else _RecordingAttention,)
    if isinstance(layer, LinearAttention):
        mixins = (_RecordingFeatures, *mixins)
    if isinstance(layer, StateAttention):
        mixins = (_RecordingState, *mixins)
    if isinstance(layer, DifferentialAttention):
        mixins = (_RecordingDifference, *mixins)
    if isinstance(layer, BlockedAttention) and recorder.all_weights:
        mixins = (_OneBlock, *mixins)
    copy = _copy(layer, mixins, recorder)
    if recorder.all_weights or not isinstance(layer, (LinearAttention, StateAttention)):
        copy.__dict__["implementation"] = "dense"
    score_mixin = _RecordingProjections if has_heads else _RecordingScore
    for name, kind, mixin in (("score", Score, score_mixin), ("positions", Positions, _RecordingPositions)):
        part = getattr(layer, name, None)
        if isinstance(part, kind):
            copy.__dict__[name] = _copy(part, (mixin,), recorder)
    return copy


def symbolic_steps(
    layer: BaseAttention, args: Any, kwargs: Any, all_weights: bool = True
) -> list[tuple[str, str, Any]]:
    """Returns name, formula and tensor of each step of a call with symbolic tensors; the last is `output`."""
    steps: list[tuple[str, str, Any]] = []
    recorder = Recorder(lambda *step: steps.append(step), symbolic=True, all_weights=all_weights)
    results = graph.inline(layer, recording_copy(layer, recorder).call, args, kwargs)
    formula = next((formula for name, formula, _ in steps if name == "output"), "")
    return [*(step for step in steps if step[0] != "output"), ("output", formula, results)]


def copy_with(layer: keras.layers.Layer, parts: dict[str, Any]) -> Any:
    """Returns a copy of a layer in which these attributes are replaced."""
    copy = _copy(layer, (), None)
    copy.__dict__.update(parts)
    return copy


def _copy(layer: Any, mixins: tuple[type, ...], recorder: Recorder | None) -> Any:
    # Not by `setattr`, because Keras would track the sublayers as new ones.
    layer_class: Any = type(layer)
    copy: Any = object.__new__(_subclass(layer_class, mixins))
    copy.__dict__.update(layer.__dict__, _recorder=recorder)
    return copy


@functools.cache
def _subclass(layer_class: Any, mixins: tuple[type, ...]) -> Any:
    if not mixins:
        return layer_class
    return type(layer_class.__name__, (*mixins, layer_class), {"__module__": layer_class.__module__})


class _Recording:
    """Base of the mixins of the copies' classes."""

    only_observes = True
    _recorder: Any

    def _original_class(self):
        return next(kind for kind in type(self).__mro__ if not issubclass(kind, _Recording))

    def _formula(self, step, method):
        return formulas.of_step(self, self._original_class(), step, method)


class _RecordingAttention(_Recording):
    """Records the steps of an attention layer."""

    def project_query(self, query, start_index=0):
        recorder = self._recorder
        recorder.role, recorder.rotation = "query", None
        recorder.unrotated = self._formula("query", "project_query")
        projected = super().project_query(query, start_index)
        recorder.record("query", recorder.rotation or recorder.unrotated, projected)
        return projected

    def project_memory(self, value, key=None, start_index=0):
        recorder = self._recorder
        recorder.role, recorder.rotation, recorder.key = "key", None, None
        recorder.unrotated = self._formula("key", "project_memory")
        memory = super().project_memory(value, key, start_index)
        formula = recorder.rotation or recorder.unrotated
        projected = memory["key"] if recorder.key is None else recorder.key
        recorder.record("key", formula, projected)
        if memory["key"] is not projected and isinstance(self, StateAttention):
            recorder.record("key_with_gates", formula, memory["key"])
        elif memory["key"] is not projected:
            recorder.record("score_key", self.score._formula("score_key", "project_key"), memory["key"])
        recorder.record("value", self._formula("value", "project_memory"), memory["value"])
        recorder.key, recorder.value = memory["key"], memory["value"]
        return memory

    def attend(self, query, memory, visible, *arguments):
        recorder = self._recorder
        if memory["key"] is not recorder.key:  # because of a cache, or because the memory was projected before
            recorder.record("key", "all keys so far", memory["key"])
        if memory["value"] is not recorder.value:
            recorder.record("value", "all values so far", memory["value"])
        recorder.key, recorder.value = memory["key"], memory["value"]
        return super().attend(query, memory, visible, *arguments)

    def attend_rows(self, query, memory, visible, bias=None, seed=None):
        self._recorder.bias, self._recorder.drops = bias, seed is not None
        return super().attend_rows(query, memory, visible, bias, seed)

    def compare(self, query, key, visible):
        scores = super().compare(query, key, visible)
        if self._recorder.scores is None:
            self._recorder.record_scores("scores", self._formula("scores", "compare"), scores)
        return scores

    def normalize(self, scores, query, visible):
        recorder = self._recorder
        if recorder.bias is not None:
            recorder.record("bias", "attention_bias", ops.broadcast_to(recorder.bias, ops.shape(scores)))
        if scores is not recorder.scores:
            recorder.record_scores("scores", "the sum of these", scores)
        mask = visible.mask()
        if mask is not None:
            recorder.record("mask", "1 where the query may attend", ops.broadcast_to(mask, ops.shape(scores)))
        weights = super().normalize(scores, query, visible)
        formula = self._formula("weights", "normalize").replace("(scores)", f"({recorder.scores_name})")
        recorder.record("weights", formula, ops.cast(weights, self.compute_dtype))
        return weights

    def weighted_sum(self, weights, value, visible):
        if self._recorder.drops:
            self._recorder.record("dropped_weights", "dropout(weights)", weights)
        summed = super().weighted_sum(weights, value, visible)
        self._recorder.record("weighted_sum", self._formula("sum", "weighted_sum"), summed)
        return summed

    def project_output(self, output):
        projected = super().project_output(output)
        self._recorder.record("output", self._formula("output", "project_output"), projected)
        return projected


class _RecordingHeads(_RecordingAttention):
    """Records the steps of attention with heads."""

    def compare_heads(self, query, key):
        return _record_comparison(self._recorder, self.score, super().compare_heads, query, key)

    def cap_scores(self, scores):
        capped = super().cap_scores(scores)
        if capped is scores:
            return scores
        recorder = self._recorder
        if scores is not recorder.scores:
            recorder.record_scores("uncapped_scores", "the sum of these", scores)
        formula = self._formula("capped_scores", "cap_scores").replace("scores", recorder.scores_name)
        return recorder.record_scores("capped_scores", formula, capped)

    def project_output(self, output):
        batch, _, length, _ = ops.shape(output)
        joined = ops.reshape(ops.transpose(output, (0, 2, 1, 3)), (batch, length, output.shape[1] * output.shape[3]))
        self._recorder.record("concatenation", "[head 1; …; head N]", joined)
        return super().project_output(output)


class _RecordingFeatures(_Recording):
    """Records the features of linear attention."""

    def query_features(self, query):
        features = super().query_features(query)
        self._recorder.record("query_features", self._formula("query_features", "query_features"), features)
        return features

    def key_features(self, key):
        features = super().key_features(key)
        self._recorder.record("key_features", self._formula("key_features", "key_features"), features)
        return features

    def attend(self, query, memory, visible, *arguments):
        results = super().attend(query, memory, visible, *arguments)
        if not self._recorder.all_weights:
            self._recorder.record("weighted_sum", "φ(query) Σ φ(key) valueᵀ / φ(query) · Σ φ(key)", results["output"])
        return results


class _RecordingState(_Recording):
    """Records the sums of attention by a state."""

    def run(self, query, *arguments):
        heads, state = super().run(query, *arguments)
        self._recorder.record("weighted_sum", "stateᵀ query", heads)
        return heads, state


class _RecordingDifference(_Recording):
    """Records both parts of differential attention, and their difference."""

    def weigh(self, query, key, visible, bias):
        recorder, record = self._recorder, self._recorder.record
        recorder.part, recorder.scores = recorder.part + 1, None
        recorder.record = lambda name, formula, tensor: record(f"{name}_{recorder.part}", formula, tensor)
        try:
            return super().weigh(query, key, visible, bias)
        finally:
            recorder.record = record

    def subtract(self, first, second):
        weights = super().subtract(first, second)
        self._recorder.record("weights", "weights_1 − λ weights_2", weights)
        return weights


class _OneBlock(_Recording):
    """Lets blocked attention use a single block of all keys, in which masks select the window of each query."""

    def blocks(self, length, start, causal):
        return QueryBlocks.whole(length, self._recorder.value.shape[-2], start)


class _RecordingProjections(_Recording):
    """Records the separate projections of queries and keys by a score."""

    def project_query(self, query):
        self._recorder.unscaled = query
        projected = super().project_query(query)
        if self.is_scaled_product():
            return query if self._recorder.symbolic else projected
        if projected is not query:
            self._recorder.record("score_query", self._formula("score_query", "project_query"), projected)
        return projected

    def project_key(self, key):
        self._recorder.key = key
        return super().project_key(key)

    def is_scaled_product(self):
        """Returns whether the score is q · k / √d with the scale applied to the query, which has fewer elements."""
        kind = self._original_class()
        return kind.project_query is ScaledDotScore.project_query and kind.compare is DotScore.compare


class _RecordingScore(_RecordingProjections):
    """Records a score and its separate projections of queries and keys."""

    def compare(self, query, key):
        return _record_comparison(self._recorder, self, super().compare, query, key)


def _record_comparison(recorder, score, compare, query, key):
    """Returns `compare(query, key)`, and records it: a scaled product before the scale and after it."""
    if recorder.unscaled is None or not score.is_scaled_product():
        scores = compare(query, key)
        return recorder.record_scores("raw_scores", formulas.of_class(score._original_class()), scores)
    raw = recorder.record_scores("raw_scores", "query · key", compare(recorder.unscaled, key))
    # Counted as in the formula, one product per score, although the layer scales its queries.
    scaled = raw * query.shape[-1] ** -0.5 if recorder.symbolic else compare(query, key)
    return recorder.record_scores("scaled_scores", f"raw_scores / √{query.shape[-1]}", scaled)


class _RecordingPositions(_Recording):
    """Records the terms of positions."""

    def _record(self, name, tensor):
        if tensor is not None:
            self._recorder.record(name, formulas.of_class(self._original_class()), tensor)
        return tensor

    def encode(self, inputs, start_index=0):
        encoded = super().encode(inputs, start_index)
        return encoded if encoded is inputs else self._record(f"{self._recorder.role}_with_positions", encoded)

    def rotate_query(self, heads, start_index=0):
        return self._record_rotation(heads, super().rotate_query(heads, start_index))

    def rotate_key(self, heads, start_index=0):
        return self._record_rotation(heads, super().rotate_key(heads, start_index))

    def _record_rotation(self, heads, rotated):
        if rotated is not heads:
            recorder = self._recorder
            recorder.record(f"{recorder.role}_unrotated", recorder.unrotated, heads)
            recorder.rotation = formulas.of_class(self._original_class())
        return rotated

    def scores(self, query, query_positions, key_positions):
        return self._record("position_scores", super().scores(query, query_positions, key_positions))

    def bias(self, query_positions, key_positions):
        bias = super().bias(query_positions, key_positions)
        if bias is not None:
            self._record("position_bias", bias[None])
        return bias

    def values(self, weights, query_positions, key_positions):
        return self._record("position_values", super().values(weights, query_positions, key_positions))
