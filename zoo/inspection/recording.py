"""Copies of attention layers that record the steps of a call, with the formulas that their methods declare.

A copy shares the weights of its layer. The public methods of the copy, its score and its positions are called through
the handlers below, which pass their results to a recorder. The record is therefore correct even if a user's subclass
overrides a method, and the layer itself does not change.
"""

import functools
import re
from typing import Any

import keras
from keras import ops

from zoo.inspection import graph
from zoo.layers import BaseAttention, LinearAttention, Positions, ScaledDotScore, Score
from zoo.layers.attention.query_blocks import QueryBlocks
from zoo.layers.attention.state_attention import StateAttention
from zoo.layers.core.projections import join_heads
from zoo.layers.scores.products import DotScore

Step = tuple[str, str, Any]
"""The name of a step, its formula and its tensor."""


class Recorder:
    """Records the steps of one call of a copy, and contains what its handlers share.

    Args:
        steps: The list to which the steps are appended.
        prefix: Prefix of their names.
        symbolic: Whether the call has symbolic tensors, to count operations.
        all_weights: Whether all weights are computed at once, instead of only those that the layer computes.
    """

    def __init__(self, steps: list[Step], prefix: str = "", symbolic: bool = False, all_weights: bool = True) -> None:
        self.steps = steps
        self.prefix = prefix
        self.symbolic = symbolic
        self.all_weights = all_weights
        self.has_heads = False
        self.side = self.formula = ""  # of the projection that is being computed, "query" or "key"
        self.key = self.value = None  # as last recorded
        self.unscaled = None  # the query before the scale of a scaled dot product
        self.bias = None
        self.drops = False  # whether dropout is active
        self.part = 0  # number of the part of a head, in differential attention
        self.suffix = ""
        self.scores, self.scores_name = None, "scores"  # as last recorded

    def record(self, name: str, formula: str, tensor: Any) -> Any:
        """Records a step, and returns its tensor."""
        self.steps.append((self.prefix + name + self.suffix, formula, tensor))
        return tensor

    def record_scores(self, name: str, formula: str, scores: Any) -> Any:
        """Records scores, and returns them."""
        self.scores, self.scores_name = scores, name
        return self.record(name, formula, scores)

    def record_change(self, name: str, part: Any, tensor: Any, unchanged: Any = None) -> Any:
        """Records a result of a part of a layer unless it is `unchanged`, and returns it."""
        return tensor if tensor is unchanged else self.record(name, formula_of_class(type(part)), tensor)


def recording_copy(layer: BaseAttention, recorder: Recorder) -> Any:
    """Returns a copy of a built attention layer that records its steps.

    The copy does not use chunks and fused kernels, whose intermediate results differ.
    """
    recorder.has_heads = layer.has_heads
    replaced: dict[str, Any] = {"has_linear_path": getattr(layer, "has_linear_path", None)}
    if recorder.all_weights or not isinstance(layer, (LinearAttention, StateAttention)):
        replaced["implementation"] = "dense"
    for name, kind, handlers in (("score", Score, _OfScore), ("positions", Positions, _OfPositions)):
        part = getattr(layer, name, None)
        if isinstance(part, kind):
            replaced[name] = _observed(part, handlers, recorder)
    return _observed(copy_with(layer, replaced), _OfLayer, recorder)


def symbolic_steps(layer: BaseAttention, args: Any, kwargs: Any, all_weights: bool = True) -> list[Step]:
    """Returns name, formula and tensor of each step of a call with symbolic tensors; the last is `output`."""
    steps: list[Step] = []
    copied = recording_copy(layer, Recorder(steps, symbolic=True, all_weights=all_weights))
    results = graph.inline(layer, copied.call, args, kwargs)
    formula = next((formula for name, formula, _ in steps if name == "output"), "")
    return [*(step for step in steps if step[0] != "output"), ("output", formula, results)]


def copy_with(layer: keras.layers.Layer, parts: dict[str, Any]) -> Any:
    """Returns a copy of a layer in which these attributes are replaced."""
    # Not by `setattr`, because Keras would track the sublayers as new ones.
    copied: Any = object.__new__(type(layer))
    copied.__dict__.update(layer.__dict__, **parts)
    return copied


def _observed(part: Any, handlers: type, recorder: Recorder) -> Any:
    """Returns a copy whose methods are called through the `handlers` with the same names."""
    observed = copy_with(part, {})
    for name, handler in vars(handlers).items():
        if callable(handler) and hasattr(part, name):
            observed.__dict__[name] = functools.partial(handler, recorder, observed, getattr(observed, name))
    return observed


def formula_of(part: Any, method: str, number: int = 0) -> str:
    """Returns the formula of a result of a method; for a method without formulas, such as a user's, its name."""
    formulas = getattr(getattr(type(part), method), "formulas", ())
    if not formulas:
        return f"{type(part).__name__}.{method}"
    formula: str = formulas[number]
    if method == "normalize":
        return formula.replace("softmax", part.normalization.label)
    if method == "project_output" and not getattr(part, "output_projection", True):
        return formula.removesuffix(" W_o + b_o")
    formula = formula if getattr(part, "use_bias", True) else re.sub(r" \+ b(_\w)?$", "", formula)
    is_query_or_key = number == 0 and method in ("project_query", "project_memory")
    return f"RMSNorm({formula})" if is_query_or_key and getattr(part, "qk_norm", False) else formula


def formula_of_class(part_class: type) -> str:
    """Returns the first formula in the docstring of a class, by convention that of its result."""
    formulas = re.findall(r"`([^`]+)`", (part_class.__dict__.get("__doc__") or "").split("\n\n")[0])
    return next((formula for formula in formulas if " " in formula), part_class.__name__)


def _recorded(name: str, method: str) -> Any:
    """Returns a handler that records the result of a method under a name."""

    def handle(recorder, part, call, *args, **kwargs):
        return recorder.record(name, formula_of(part, method), call(*args, **kwargs))

    return handle


class _OfLayer:
    """Handlers of the methods of attention layers. The argument `call` of a handler is the method itself."""

    def project_query(recorder, layer, call, *args, **kwargs):
        recorder.side, recorder.formula = "query", formula_of(layer, "project_query")
        projected = call(*args, **kwargs)
        return recorder.record("query", recorder.formula, projected)

    def project_memory(recorder, layer, call, *args, **kwargs):
        recorder.side, recorder.formula, recorder.key = "key", formula_of(layer, "project_memory"), None
        memory = call(*args, **kwargs)
        key = memory["key"] if recorder.key is None else recorder.key
        recorder.record("key", recorder.formula, key)
        if memory["key"] is not key and isinstance(layer, StateAttention):
            recorder.record("key_with_gates", recorder.formula, memory["key"])
        elif memory["key"] is not key:
            recorder.record("score_key", formula_of(layer.score, "project_key"), memory["key"])
        recorder.record("value", formula_of(layer, "project_memory", 1), memory["value"])
        recorder.key, recorder.value = memory["key"], memory["value"]
        return memory

    query_features = _recorded("query_features", "query_features")
    key_features = _recorded("key_features", "key_features")

    def attend(recorder, layer, call, query, memory, *args, **kwargs):
        if memory["key"] is not recorder.key:  # because of a cache, or because the memory was projected before
            recorder.record("key", "all keys so far", memory["key"])
        if memory["value"] is not recorder.value:
            recorder.record("value", "all values so far", memory["value"])
        recorder.key, recorder.value = memory["key"], memory["value"]
        results = call(query, memory, *args, **kwargs)
        if isinstance(layer, LinearAttention) and not recorder.all_weights:
            recorder.record("weighted_sum", "φ(query) Σ φ(key) valueᵀ / φ(query) · Σ φ(key)", results["output"])
        return results

    def blocks(recorder, layer, call, length, start, causal):
        if not recorder.all_weights:
            return call(length, start, causal)
        return QueryBlocks.whole(length, recorder.value.shape[-2], start)  # its mask selects the window of each query

    def run(recorder, layer, call, *args, **kwargs):
        heads, state = call(*args, **kwargs)
        return recorder.record("weighted_sum", "stateᵀ query", heads), state

    def attend_rows(recorder, layer, call, query, memory, visibility, bias=None, seed=None):
        recorder.bias, recorder.drops = bias, seed is not None
        return call(query, memory, visibility, bias, seed)

    def weigh(recorder, layer, call, *args, **kwargs):
        recorder.part, recorder.scores = recorder.part + 1, None
        recorder.suffix = f"_{recorder.part}"
        weights = call(*args, **kwargs)
        recorder.suffix = ""
        return weights

    subtract = _recorded("weights", "subtract")

    def compare_heads(recorder, layer, call, query, key):
        return _record_comparison(recorder, layer.score, call, query, key)

    def cap_scores(recorder, layer, call, scores):
        capped = call(scores)
        if capped is scores:
            return scores
        if scores is not recorder.scores:
            recorder.record_scores("uncapped_scores", "the sum of these", scores)
        formula = formula_of(layer, "cap_scores").replace("scores", recorder.scores_name)
        return recorder.record_scores("capped_scores", formula, capped)

    def compare(recorder, layer, call, *args, **kwargs):
        scores = call(*args, **kwargs)
        if recorder.scores is None:
            recorder.record_scores("scores", formula_of(layer, "compare"), scores)
        return scores

    def normalize(recorder, layer, call, scores, query, visibility):
        if recorder.bias is not None:
            recorder.record("bias", "attention_bias", ops.broadcast_to(recorder.bias, ops.shape(scores)))
        if scores is not recorder.scores:
            recorder.record_scores("scores", "the sum of these", scores)
        mask = visibility.mask()
        if mask is not None:
            recorder.record("mask", "1 where the query may attend", ops.broadcast_to(mask, ops.shape(scores)))
        weights = call(scores, query, visibility)
        formula = formula_of(layer, "normalize").replace("(scores)", f"({recorder.scores_name})")
        recorder.record("weights", formula, ops.cast(weights, layer.compute_dtype))
        return weights

    def weighted_sum(recorder, layer, call, weights, *args, **kwargs):
        if recorder.drops:
            recorder.record("dropped_weights", "dropout(weights)", weights)
        return recorder.record("weighted_sum", formula_of(layer, "weighted_sum"), call(weights, *args, **kwargs))

    def project_output(recorder, layer, call, output):
        if layer.has_heads:
            size = output.shape[1] * output.shape[3]
            recorder.record("concatenation", "[head 1; …; head N]", join_heads(None, output, size))
        return recorder.record("output", formula_of(layer, "project_output"), call(output))


class _OfScore:
    """Handlers of the methods of scores, which record separate projections of queries and keys."""

    def project_query(recorder, score, call, query):
        recorder.unscaled = query
        projected = call(query)
        if _is_scaled_product(score):
            return query if recorder.symbolic else projected
        if projected is not query:
            recorder.record("score_query", formula_of(score, "project_query"), projected)
        return projected

    def project_key(recorder, score, call, key):
        recorder.key = key
        return call(key)

    def compare(recorder, score, call, query, key):
        return call(query, key) if recorder.has_heads else _record_comparison(recorder, score, call, query, key)


def _is_scaled_product(score: Any) -> bool:
    """Returns whether the score is q · k / √d with the scale applied to the query, which has fewer elements."""
    kind: Any = type(score)
    return kind.project_query is ScaledDotScore.project_query and kind.compare is DotScore.compare


def _record_comparison(recorder: Recorder, score: Any, compare: Any, query: Any, key: Any) -> Any:
    """Returns `compare(query, key)`, and records it: a scaled product before the scale and after it."""
    if recorder.unscaled is None or not _is_scaled_product(score):
        return recorder.record_scores("raw_scores", formula_of_class(type(score)), compare(query, key))
    raw = recorder.record_scores("raw_scores", "query · key", compare(recorder.unscaled, key))
    # Counted as in the formula, one product per score, although the layer scales its queries.
    scaled = raw * query.shape[-1] ** -0.5 if recorder.symbolic else compare(query, key)
    return recorder.record_scores("scaled_scores", f"raw_scores / √{query.shape[-1]}", scaled)


class _OfPositions:
    """Handlers of the methods of positions, which record their terms."""

    def encode(recorder, positions, call, inputs, *args, **kwargs):
        encoded = call(inputs, *args, **kwargs)
        return recorder.record_change(f"{recorder.side}_with_positions", positions, encoded, inputs)

    def rotate_query(recorder, positions, call, heads, *args, **kwargs):
        rotated = call(heads, *args, **kwargs)
        if rotated is not heads:
            recorder.record(f"{recorder.side}_unrotated", recorder.formula, heads)
            recorder.formula = formula_of_class(type(positions))
        return rotated

    rotate_key = rotate_query

    def scores(recorder, positions, call, *args, **kwargs):
        return recorder.record_change("position_scores", positions, call(*args, **kwargs))

    def bias(recorder, positions, call, *args, **kwargs):
        bias = call(*args, **kwargs)
        recorder.record_change("position_bias", positions, bias if bias is None else bias[None])
        return bias

    def values(recorder, positions, call, *args, **kwargs):
        return recorder.record_change("position_values", positions, call(*args, **kwargs))
