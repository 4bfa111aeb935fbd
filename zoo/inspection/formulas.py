"""The formulas of the steps of attention, by the method that computes the step.

For a method that is not in the table, such as one that a user's subclass overrides, its name is shown instead.
"""

import re
from typing import Any

from zoo.layers import (
    BaseAttention,
    DeltaRuleAttention,
    GatedLinearAttention,
    LinearAttention,
    LocalAttention,
    MultiHeadAttention,
    MultiScaleRetention,
    PerformerAttention,
    TalkingHeadsAttention,
)
from zoo.layers.attention.single_head import Attention, SelfAttention
from zoo.layers.attention.state_attention import StateAttention
from zoo.layers.scores.additive import AdditiveScore, TanhConcatScore
from zoo.layers.scores.by_name import PerHeadScore
from zoo.layers.scores.location import LocationScore
from zoo.layers.scores.products import CosineScore, GeneralScore

_FORMULAS = {
    ("query", BaseAttention.project_query): "query",
    ("key", BaseAttention.project_memory): "key",
    ("value", BaseAttention.project_memory): "value",
    ("key", Attention.project_memory): "key",
    ("value", Attention.project_memory): "value",
    ("query", SelfAttention.project_query): "query W_q + b_q",
    ("key", SelfAttention.project_memory): "key W_k + b_k",
    ("value", SelfAttention.project_memory): "value W_v + b_v",
    ("query", MultiHeadAttention.project_query): "query W_q + b_q",
    ("key", MultiHeadAttention.project_memory): "key W_k + b_k",
    ("value", MultiHeadAttention.project_memory): "value W_v + b_v",
    ("weights", BaseAttention.normalize): "softmax(scores)",
    ("weights", LinearAttention.normalize): "φ(query) · φ(key) / Σ φ(query) · φ(key)",
    ("weights", StateAttention.normalize): "scores where the mask allows",
    ("sum", StateAttention.weighted_sum): "weights · value",
    ("scores", MultiScaleRetention.compare): "γ^(t − s) query · key / √H",
    ("scores", GatedLinearAttention.compare): "Σ_h query_h key_h α_h … α_h / √H",
    ("scores", DeltaRuleAttention.compare): "tril(query keyᵀ) (I + A)⁻¹ diag(β) / √H",
    ("sum", TalkingHeadsAttention.weighted_sum): "P_w weights · value",
    ("scores", TalkingHeadsAttention.compare): "P_l scaled_scores",
    ("weights", LocalAttention.normalize): "softmax(scores), inside the window",
    ("scores", LinearAttention.compare): "log(φ(query) · φ(key))",
    ("capped_scores", MultiHeadAttention.cap_scores): "c · tanh(scores / c)",
    ("sum", BaseAttention.weighted_sum): "weights · value",
    ("sum", MultiHeadAttention.weighted_sum): "weights · value",
    ("output", BaseAttention.project_output): "weighted_sum",
    ("output", MultiHeadAttention.project_output): "concatenation W_o + b_o",
    ("query_features", LinearAttention.query_features): "φ(query) = elu(query) + 1",
    ("key_features", LinearAttention.key_features): "φ(key) = elu(key) + 1",
    ("query_features", PerformerAttention.query_features): "φ(query) = exp(ω · query' − max)",
    ("key_features", PerformerAttention.key_features): "φ(key) = exp(ω · key' − |key'|² / 2)",
    ("score_query", AdditiveScore.project_query): "W_1 query + b",
    ("score_key", AdditiveScore.project_key): "W_2 key",
    ("score_query", TanhConcatScore.project_query): "W_1 query + b",
    ("score_key", TanhConcatScore.project_key): "W_2 key",
    ("score_key", GeneralScore.project_key): "W key",
    ("score_query", CosineScore.project_query): "query / (τ |query|)",
    ("score_key", CosineScore.project_key): "key / |key|",
    ("score_query", PerHeadScore.project_query): "its own projection in each head",
    ("score_key", PerHeadScore.project_key): "its own projection in each head",
    ("score_query", LocationScore.project_query): "W query",
    ("score_key", LocationScore.project_key): "0",
}


def of_step(layer: Any, layer_class: type, step: str, method: str) -> str:
    """Returns the formula of a step that a method of a layer computes; `layer_class` is the layer's original class."""
    formula = _FORMULAS.get((step, getattr(layer_class, method)))
    if formula is None:
        return f"{layer_class.__name__}.{method}"
    if step == "weights":
        return formula.replace("softmax", layer.normalization.label)
    if step == "output" and not getattr(layer, "output_projection", True):
        return formula.removesuffix(" W_o + b_o")
    formula = formula if getattr(layer, "use_bias", True) else re.sub(r" \+ b(_\w)?$", "", formula)
    return f"RMSNorm({formula})" if step in ("query", "key") and getattr(layer, "qk_norm", False) else formula


def of_class(layer_class: type) -> str:
    """Returns the first formula in the docstring of a class, by convention that of its result."""
    formulas = re.findall(r"`([^`]+)`", (layer_class.__dict__.get("__doc__") or "").split("\n\n")[0])
    return next((formula for formula in formulas if " " in formula), layer_class.__name__)
