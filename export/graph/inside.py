"""Signatures of several tasks that return a model's internal values: vectors, and self-attention of the input."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from export.graph.attention_weights import DEFAULT, NUMBERS, chosen, expected_sizes, sizes
from export.graph.language_model import LanguageModelGraph
from export.graph.model_graph import ModelGraph
from export.graph.predictions import expected_predictions, predicted
from export.graph.signatures import SHORT_TEXTS, Answers, attends, register_signature, stacked
from export.options import ExportOptions
from zoo.vocabulary import PAD


def _expected_embeddings(run: Any, options: ExportOptions) -> Answers:
    tokens, vectors = zip(*run.embed(SHORT_TEXTS), strict=True)
    return {"text": SHORT_TEXTS}, {"tokens": stacked(tokens, ""), "embeddings": stacked(vectors, 0.0)}


@register_signature("seq2seq", "embed", expected=_expected_embeddings)
@register_signature("classifier", "embed", expected=_expected_embeddings)
@register_signature("language_model", "embed", expected=_expected_embeddings)
@register_signature("sentence_encoder", "embed", expected=_expected_embeddings)
def embed(graph: ModelGraph, text: tf.Tensor) -> Mapping[str, tf.Tensor]:
    """The tokens of each text and their contextual vectors; 0 for padding."""
    ids = graph.ids(text)
    vectors = tf.cast(graph.model.represent(ids), tf.float32)
    return {"tokens": graph.reader.pieces(ids), "embeddings": tf.where((ids != PAD)[:, :, None], vectors, 0.0)}


def _expected_attention(run: Any, options: ExportOptions) -> Answers:
    tokens, weights = zip(*run.attention(SHORT_TEXTS), strict=True)
    return {"text": SHORT_TEXTS}, {"tokens": stacked(tokens, ""), "attention": stacked(weights, 0.0)}


@register_signature("classifier", "attention", available=attends, expected=_expected_attention)
@register_signature("language_model", "attention", available=attends, expected=_expected_attention)
@register_signature("sentence_encoder", "attention", available=attends, expected=_expected_attention)
def attention(graph: ModelGraph, text: tf.Tensor) -> Mapping[str, tf.Tensor]:
    """The tokens of each text and the attention between them."""
    ids = graph.ids(text)
    (weights,) = graph.model.attentions(ids).values()
    return {"tokens": graph.reader.pieces(ids), "attention": _of_tokens(ids, tf.cast(weights, tf.float32))}


def _of_tokens(ids: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns weights [B, layers, heads, S, S], 0 for queries that are padding, which a causal mask does not mask."""
    return weights * tf.cast(ids != PAD, tf.float32)[:, None, None, :, None]


def _expected_attentions(run: Any, options: ExportOptions) -> Answers:
    (kind,) = run.model.attention_kinds
    inputs, outputs = _expected_attention(run, options)
    weights = {kind: outputs["attention"]}
    return inputs, {"tokens": outputs["tokens"], **weights, **expected_sizes(weights)}


_NUMBERED: dict[str, Any] = {"inputs": {"layer": NUMBERS, "head": NUMBERS}, "available": attends}


@register_signature("classifier", "attention_all", expected=_expected_attentions, **_NUMBERED)
@register_signature("sentence_encoder", "attention_all", expected=_expected_attentions, **_NUMBERED)
def attention_all(
    graph: ModelGraph, text: tf.Tensor, layer: Any = DEFAULT, head: Any = DEFAULT
) -> dict[str, tf.Tensor]:
    """The tokens of each text and the attention between them, by kind, of all or of selected layers and heads."""
    ids = graph.ids(text)
    weights = graph.model.attentions(ids)
    of_tokens = {kind: _of_tokens(ids, values) for kind, values in chosen(weights, layer, head).items()}
    return {"tokens": graph.reader.pieces(ids), **of_tokens, **sizes(weights)}


def _expected_predictions(run: Any, options: ExportOptions) -> Answers:
    inputs, outputs = _expected_attentions(run, options)
    predictions = run.predictions(SHORT_TEXTS)
    targets = stacked([[prediction.token for prediction in row] for row in predictions], "")
    return inputs, {**outputs, "target_tokens": targets, **expected_predictions(predictions)}


@register_signature("language_model", "attention_all", expected=_expected_predictions, **_NUMBERED)
def attention_and_predictions(
    graph: LanguageModelGraph, text: tf.Tensor, layer: Any = DEFAULT, head: Any = DEFAULT
) -> dict[str, tf.Tensor]:
    """The outputs of `attention_all`, and predictions: `target_tokens[t]` follows `tokens[t]`; the last one is the end.

    Row t of `decoder` is the attention that predicts `target_tokens[t]`.
    """
    following = graph.following_ids(text)
    return {
        **attention_all(graph, text, layer, head),
        "target_tokens": graph.reader.pieces(following),
        **predicted(graph.token_scorer({"tokens": following, "before": graph.ids(text)}), graph.reader),
    }
